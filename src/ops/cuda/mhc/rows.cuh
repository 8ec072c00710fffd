// The ends of the streams: expand alone (after the last site), and the mean that enters the head.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/device/reduce.cuh"
#include "ops/cuda/mhc/params.h"

namespace baton::cuda::mhc {

inline constexpr int kRowThreads = kWidth / 8;

// One block a row, 8 columns of every stream a thread.
__global__ void __launch_bounds__(kRowThreads) expand_rows(const __grid_constant__ MixParams p) {
  wait_for_predecessor();
  allow_successor();
  const int64_t row = blockIdx.x;
  const int column = static_cast<int>(threadIdx.x) * 8;
  uint4 in[kStreams];
#pragma unroll
  for (int t = 0; t < kStreams; ++t) in[t] = *reinterpret_cast<const uint4*>(p.streams + (row * p.stream_stride + t * kWidth + column) * 2);
  const uint4 y4 = *reinterpret_cast<const uint4*>(p.y + (row * p.y_stride + column) * 2);
  const uint32_t y[4] = {y4.x, y4.y, y4.z, y4.w};
#pragma unroll
  for (int t = 0; t < kStreams; ++t) {
    const float post = p.from_post[row * p.from_post_stride + t];
    uint32_t out[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      float low = post * bf16_low(y[w]);
      float high = post * bf16_high(y[w]);
#pragma unroll
      for (int j = 0; j < kStreams; ++j) {
        const uint32_t x = w == 0 ? in[j].x : w == 1 ? in[j].y : w == 2 ? in[j].z : in[j].w;
        const float comb = p.from_comb[row * p.from_comb_stride + j * kStreams + t];
        low = fmaf(comb, bf16_low(x), low);
        high = fmaf(comb, bf16_high(x), high);
      }
      out[w] = pack_bf16x2(low, high);
    }
    *reinterpret_cast<uint4*>(p.streams + (row * p.stream_stride + t * kWidth + column) * 2) = make_uint4(out[0], out[1], out[2], out[3]);
  }
}

// h = RMSNorm(mean of the streams), rounded before the norm.
__global__ void __launch_bounds__(kRowThreads) final_rows(const __grid_constant__ MixParams p) {
  __shared__ float sums[kRowThreads / 32];
  wait_for_predecessor();
  allow_successor();
  const int64_t row = blockIdx.x;
  const int column = static_cast<int>(threadIdx.x) * 8;
  float u[8] = {};
#pragma unroll
  for (int t = 0; t < kStreams; ++t) {
    const uint4 v = *reinterpret_cast<const uint4*>(p.streams + (row * p.stream_stride + t * kWidth + column) * 2);
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      u[2 * i] = fmaf(1.0F / kStreams, bf16_low(w[i]), u[2 * i]);
      u[2 * i + 1] = fmaf(1.0F / kStreams, bf16_high(w[i]), u[2 * i + 1]);
    }
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const uint32_t rounded = pack_bf16x2(u[i], u[i + 1]);
    u[i] = bf16_low(rounded);
    u[i + 1] = bf16_high(rounded);
    squares += u[i] * u[i] + u[i + 1] * u[i + 1];
  }
  squares = warp_sum(squares);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = squares;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kRowThreads / 32; ++i) sum += sums[i];
  const float inverse = 1.0F / sqrtf(sum * (1.0F / kWidth) + p.norm_eps);
  uint32_t x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i)
    x[i] = pack_bf16x2(u[2 * i] * inverse * p.norm_weight[column + 2 * i], u[2 * i + 1] * inverse * p.norm_weight[column + 2 * i + 1]);
  *reinterpret_cast<uint4*>(p.x + (row * p.x_stride + column) * 2) = make_uint4(x[0], x[1], x[2], x[3]);
}

}  // namespace baton::cuda::mhc
