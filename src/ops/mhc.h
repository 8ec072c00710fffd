// Manifold-constrained hyper-connections: the streams around every sub-layer, in float throughout.
//
// For one token with streams X[s, d] and f = vec(X):
//   m    = rsqrt(mean(f^2) + norm_eps) * (fn f)                         s + s + s*s values
//   pre  = sigmoid(m_pre * scale[0] + base_pre) + hc_eps
//   post = 2 sigmoid(m_post * scale[1] + base_post)
//   C    = Sinkhorn(softmax over the last index of (m_C * scale[2] + base_C), + hc_eps), last operation a column normalisation
//   u    = sum_i pre_i X_i                         (the sub-layer's input before its norm)
//   X'_i = post_i y + sum_j C[j, i] X_j            (transposed: stream i takes column i)
#pragma once

#include "ops/weight.h"
#include "tensor/view.h"

namespace baton::ops {

inline constexpr int64_t kMaxStreams = 32;

// What a sub-layer's output needs to return to the streams. All kF32.
struct MhcCoefficients {
  MatrixView post{};  // [m, s]
  MatrixView comb{};  // [m, s * s], row-major C
};

// X <- post y + C^T X, rounded once to the streams' type.
struct MhcExpandParams {
  MatrixView streams{};  // [m, s * d], stream-major, updated in place
  ConstMatrixView y{};   // [m, d]
  MhcCoefficients from{};
  int64_t stream_count = 0;
};

// Optional expand of the previous site, then coefficients of this site, collapse and RMSNorm.
struct MhcMixParams {
  MatrixView streams{};    // [m, s * d]
  ConstMatrixView y{};     // [m, d] output of the previous site, or empty
  MhcCoefficients from{};  // of the previous site; may alias `to`
  int64_t stream_count = 0;
  WeightView fn{};                     // [(2 + s) * s, s * d]
  const float* base = nullptr;         // [(2 + s) * s]
  const float* scale = nullptr;        // [3]
  const float* norm_weight = nullptr;  // [d]
  float norm_eps = 0;
  float hc_eps = 0;
  int sinkhorn_iterations = 0;
  MhcCoefficients to{};
  MatrixView x{};  // [m, d] normed input of the sub-layer, kF32 or kBF16; u is rounded to this type before the norm
};

// h = RMSNorm(mean_i X_i): what enters the head; without a norm weight the mean alone, what a drafter reads.
struct MhcFinalParams {
  ConstMatrixView streams{};  // [m, s * d]
  int64_t stream_count = 0;
  const float* norm_weight = nullptr;  // [d], or null
  float norm_eps = 0;
  MatrixView h{};  // [m, d]
};

}  // namespace baton::ops
