// Reading and writing rows of views as floats.
#pragma once

#include <algorithm>
#include <cmath>

#include "ops/cpu/kernels/row_kernels.h"
#include "tensor/view.h"

namespace baton::cpu {

// Columns [first, first + count) of row r: in place when the view already holds floats, else widened into scratch.
inline const float* float_row(const RowKernels& kernels, const ConstMatrixView& view, int64_t r, int64_t first, int64_t count,
                              float* scratch) {
  const std::byte* p = view.row_bytes(r) + first * dtype_bytes(view.dtype);
  if (view.dtype == DType::kF32) return reinterpret_cast<const float*>(p);
  kernels.widen(p, view.dtype, scratch, count);
  return scratch;
}

inline void write_row(const RowKernels& kernels, const float* src, const MatrixView& view, int64_t r, int64_t first, int64_t count) {
  kernels.narrow(src, view.row_bytes(r) + first * dtype_bytes(view.dtype), view.dtype, count);
}

// Scale of e4m3 cache rows: 2^ceil(log2(max(amax, 1e-4) / 448)). A power of two, so that multiplying by it is exact.
inline float power_of_two_scale(float amax) {
  constexpr float kFloor = 1e-4F;
  return std::exp2(std::ceil(std::log2(std::max(amax, kFloor) / kE4m3Max)));
}

inline bool is_float_type(DType t) { return t == DType::kF32 || t == DType::kBF16; }

}  // namespace baton::cpu
