// Matrix products of activations with weights.
//
// Every output element is summed over k in one fixed order that does not depend on the number of rows, on the row's place among them,
// on the thread count, or on which other weights share the launch: rows are bitwise independent of their batch.
#pragma once

#include <span>

#include "ops/weight.h"
#include "tensor/view.h"

namespace baton::ops {

struct GemmOutput {
  WeightView w{};  // [n, k]
  MatrixView y{};  // [m, n], kF32 or kBF16
};

// y_i = x w_i^T for weights that share the input. x decides the arithmetic:
//   kF32:  products and sums in float, no rounding of operands (FP8 weights: per 128 columns of k, then times the scale)
//   kBF16: products of bf16 operands summed in float
struct GemmParams {
  ConstMatrixView x{};  // [m, k], kF32 or kBF16; m >= 0
  std::span<const GemmOutput> outputs{};
  ActivationQuant quant = ActivationQuant::kNone;
};

// y[r, b*n : (b+1)*n] = x[r, b*k : (b+1)*k] w_b^T for every batch b (per-head products of the absorbed attention).
struct GemmBatchedParams {
  ConstMatrixView x{};              // [m, batch * k]
  std::span<const WeightView> w{};  // [batch] of [n, k], kF32 or kBF16
  MatrixView y{};                   // [m, batch * n], kF32 or kBF16
};

// h = silu(min(x gate^T, limit)) * clamp(x up^T, -limit, limit): the clamp precedes silu and bounds the gate from above only.
struct GatedMlpParams {
  ConstMatrixView x{};  // [m, k]
  WeightView gate{};    // [n, k]
  WeightView up{};      // [n, k]
  float limit = 0;
  MatrixView h{};  // [m, n], dtype of x
  ActivationQuant quant = ActivationQuant::kNone;
};

}  // namespace baton::ops
