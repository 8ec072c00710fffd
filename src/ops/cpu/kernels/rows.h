// The kernels of one instruction set, before they are gathered into RowKernels. Included only by kernel files.
#pragma once

#include <cstdint>

#include "tensor/number.h"

namespace baton::cpu::BATON_ISA_NAMESPACE {

void widen(const void* src, DType dtype, float* dst, int64_t n);
void narrow(const float* src, void* dst, DType dtype, int64_t n);
void rms_norm(const float* x, const float* w, float eps, float* y, int64_t n);
void layer_norm(const float* x, const float* w, const float* b, float eps, float* y, int64_t n);
void add(float* x, const float* y, int64_t n);
float sum_squares(const float* x, int64_t n);
float max_abs(const float* x, int64_t n);
void mhc_expand(float* streams, const float* y, const float* post, const float* comb, int64_t s, int64_t d);
void mhc_collapse(const float* streams, const float* weight, float* u, int64_t s, int64_t d);
void kda_conv(const float* x0, const float* x1, const float* x2, const float* x3, const float* w, float* y, int64_t n);
void l2_normalise(float* x, float factor, int64_t n);
void kda_decay(const float* a, const float* bias, float rate, float lower, float* decay, int64_t n);
void kda_recur(float* state, int64_t dim, int64_t v0, int64_t v1, int64_t tokens, const float* q, const float* k, const float* v,
               const float* decay, int64_t stride, const float* beta, int64_t beta_stride, float* o, int64_t o_stride);
void gated_norm(const float* o, const float* w, const float* z, float eps, float* y, int64_t n);
void index_scores(const float* q, const float* w, int64_t heads, const float* keys, int64_t count, int64_t dim, float* scores);
void pool_keys(const float* const* key, const float* const* gamma, const float* ape, int64_t pool, int64_t dim, float* pooled);
void hadamard(float* x, int64_t n);
void attend_block(const float* q, const float* keys, const float* values, int64_t count, int64_t heads, int64_t dim, float scale,
                  float* max, float* sum, float* out, float* scratch);
void clamped_swiglu(const float* gate, const float* up, float limit, float* h, int64_t n);
void sigmoid_rows(float* x, int64_t n);

}  // namespace baton::cpu::BATON_ISA_NAMESPACE
