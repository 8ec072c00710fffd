// RMSNorm: y = x * rsqrt(mean(x^2) + eps) * weight per row; statistics and products in float, one rounding to the output type.
#pragma once

#include "tensor/view.h"

namespace baton::ops {

struct RmsNormParams {
  ConstMatrixView x{};            // [m, d], kF32 or kBF16
  MatrixView add_to{};            // optional [m, d]: add_to += x first (one rounding), and the sum is normalised
  const float* weight = nullptr;  // [d]
  float eps = 0;
  MatrixView y{};  // [m, d], kF32 or kBF16; may be a column range of a wider matrix
};

}  // namespace baton::ops
