// What surrounds the matrix products, row by row. Included only by kernel files.
#pragma once

#include <cstdint>

#include "tensor/number.h"

namespace baton::cpu::BATON_ISA_NAMESPACE {

// See GemmKernels.
void quantise_row(const float* x, int64_t k, void* dst, DType dst_dtype, float* scale);
void store_rows(const float* src, int64_t src_stride, int64_t m, int64_t n, void* dst, int64_t dst_stride, DType dst_dtype);
void swiglu_rows(float* gate, const float* up, int64_t stride, int64_t m, int64_t n, float limit);
void weighted_sum(const void* base, DType base_dtype, const void* const* rows, DType dtype, const float* weight, int64_t count, int64_t n,
                  void* out, DType out_dtype);

}  // namespace baton::cpu::BATON_ISA_NAMESPACE
