// From the 24 products of a row to its coefficients (formulas: ops/mhc.h).
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/mhc/params.h"

namespace baton::cuda::mhc {

__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float logistic(float x) { return reciprocal(1.0F + __expf(-x)); }

// Sinkhorn of one row by one thread: C = diag(u) K diag(v), so that a normalisation is four short sums and four reciprocals.
__device__ __forceinline__ void sinkhorn(const float (&logits)[kStreams * kStreams], float eps, int iterations, float* comb) {
  float k[kStreams][kStreams];
#pragma unroll
  for (int i = 0; i < kStreams; ++i) {
    const float* row = logits + i * kStreams;
    const float top = fmaxf(fmaxf(row[0], row[1]), fmaxf(row[2], row[3]));
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kStreams; ++j) sum += k[i][j] = __expf(row[j] - top);
    const float inverse = reciprocal(sum);
#pragma unroll
    for (int j = 0; j < kStreams; ++j) k[i][j] = k[i][j] * inverse + eps;
  }
  float u[kStreams] = {1, 1, 1, 1};
  float v[kStreams] = {1, 1, 1, 1};
  const auto columns = [&] {
#pragma unroll
    for (int j = 0; j < kStreams; ++j) {
      const float sum = (u[0] * k[0][j] + u[1] * k[1][j]) + (u[2] * k[2][j] + u[3] * k[3][j]);
      v[j] *= reciprocal(fmaf(v[j], sum, eps));
    }
  };
  const auto rows = [&] {
#pragma unroll
    for (int i = 0; i < kStreams; ++i) {
      const float sum = (v[0] * k[i][0] + v[1] * k[i][1]) + (v[2] * k[i][2] + v[3] * k[i][3]);
      u[i] *= reciprocal(fmaf(u[i], sum, eps));
    }
  };
  columns();
#pragma unroll 1
  for (int t = 1; t < iterations; ++t) {
    rows();
    columns();
  }
#pragma unroll
  for (int i = 0; i < kStreams; ++i)
#pragma unroll
    for (int j = 0; j < kStreams; ++j) comb[i * kStreams + j] = u[i] * k[i][j] * v[j];
}

}  // namespace baton::cuda::mhc
