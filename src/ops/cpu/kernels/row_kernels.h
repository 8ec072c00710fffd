// Kernels that work on one row, one head or one token: what the ops of the CPU backend are made of, once per instruction set.
// All take raw pointers; sums run in an order that depends on sizes alone.
#pragma once

#include <cstdint>

#include "ops/cpu/isa.h"
#include "tensor/number.h"

namespace baton::cpu {

struct RowKernels {
  // dst = src widened (kF32, kBF16) / src rounded to nearest even.
  void (*widen)(const void* src, DType dtype, float* dst, int64_t n);
  void (*narrow)(const float* src, void* dst, DType dtype, int64_t n);

  // y = x * rsqrt(mean x^2 + eps) * w; y may alias x.
  void (*rms_norm)(const float* x, const float* w, float eps, float* y, int64_t n);
  // y = (x - mean) / sqrt(variance + eps) * w + b
  void (*layer_norm)(const float* x, const float* w, const float* b, float eps, float* y, int64_t n);
  void (*add)(float* x, const float* y, int64_t n);
  float (*sum_squares)(const float* x, int64_t n);
  float (*max_abs)(const float* x, int64_t n);

  // mHC: X[s, d] <- post_i y + sum_j C[j, i] X_j;   u = sum_i weight_i X_i.
  void (*mhc_expand)(float* streams, const float* y, const float* post, const float* comb, int64_t s, int64_t d);
  void (*mhc_collapse)(const float* streams, const float* weight, float* u, int64_t s, int64_t d);

  // KDA: y[c] = silu(sum_j w[c, j] x_{j}[c]) with the four inputs oldest first.
  void (*kda_conv)(const float* x0, const float* x1, const float* x2, const float* x3, const float* w, float* y, int64_t n);
  // x <- x * factor / sqrt(sum x^2 + 1e-6)
  void (*l2_normalise)(float* x, float factor, int64_t n);
  // decay[c] = exp(lower * sigmoid(rate * (a[c] + bias[c])))
  void (*kda_decay)(const float* a, const float* bias, float rate, float lower, float* decay, int64_t n);
  // One head over consecutive tokens, columns [v0, v1) of the state [dim, dim]. q, k, v, decay: [tokens, stride]; o: [tokens, o_stride];
  // beta: [tokens, beta_stride].
  void (*kda_recur)(float* state, int64_t dim, int64_t v0, int64_t v1, int64_t tokens, const float* q, const float* k, const float* v,
                    const float* decay, int64_t stride, const float* beta, int64_t beta_stride, float* o, int64_t o_stride);
  // y = o / sqrt(mean o^2 + eps) * w * sigmoid(z); y may alias o
  void (*gated_norm)(const float* o, const float* w, const float* z, float eps, float* y, int64_t n);

  // scores[p] = sum_h w[h] relu(q_h . key_p)     keys [count, dim]
  void (*index_scores)(const float* q, const float* w, int64_t heads, const float* keys, int64_t count, int64_t dim, float* scores);
  // pooled[c] = sum_s softmax_s(gamma_s[c] + ape_s[c]) key_s[c]
  void (*pool_keys)(const float* const* key, const float* const* gamma, const float* ape, int64_t pool, int64_t dim, float* pooled);
  // In-place orthonormal Walsh-Hadamard transform of a power of two length.
  void (*hadamard)(float* x, int64_t n);

  // Online softmax over one block of keys: q [heads, dim], keys and values [count, dim], which may be the same; running max [heads],
  // sum [heads], out [heads, dim], not yet divided by the sum.
  void (*attend_block)(const float* q, const float* keys, const float* values, int64_t count, int64_t heads, int64_t dim, float scale,
                       float* max, float* sum, float* out, float* scratch /* [heads * count] */);

  // h = silu(min(gate, limit)) * clamp(up, +-limit)
  void (*clamped_swiglu)(const float* gate, const float* up, float limit, float* h, int64_t n);
  // x <- sigmoid(x) for n values
  void (*sigmoid)(float* x, int64_t n);
};

const RowKernels& row_kernels(Isa isa);

}  // namespace baton::cpu
