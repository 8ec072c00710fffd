// Router: scores = sigmoid(x router^T), then the choices with the largest score + bias.
//
// A cluster of 8 blocks owns 16 * kTiles rows; each block multiplies an eighth of k for all experts (so that few rows still fill the
// device), the partial sums are added in the order of the blocks, and each block finishes an eighth of the rows. Every row is summed in
// the same order whatever the number of rows. Operands go from global memory straight into mma fragments: lane 4 g + c loads 8
// neighbouring k of row g, which are the k of two products after a permutation that both operands share.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/device/matrix.cuh"

namespace baton::cuda::moe {

inline constexpr int kRouteCluster = 8;
inline constexpr int kRouteWarpExperts = 32;  // experts of a warp: 4 tiles of 8

struct RouteParams {
  const uint4* x;       // bf16 [rows, width]
  const uint4* router;  // bf16 [experts, width]
  const float* bias;
  float* scores;  // [rows, experts] or null
  int32_t* ids;
  float* weights;
  int64_t rows;
  int32_t width;
  int32_t experts;  // a multiple of 32: one warp for each 32
  int32_t choices;
  bool renormalise;
  float scaling;
};

// The largest key of the warp in every lane. Keys order by biased score, then by lower id.
__device__ __forceinline__ uint64_t warp_max_key(uint64_t key) {
#pragma unroll
  for (int bit = 16; bit > 0; bit /= 2) {
    const uint64_t other = __shfl_xor_sync(0xFFFFFFFFU, key, bit);
    key = other > key ? other : key;
  }
  return key;
}
__device__ __forceinline__ uint64_t choice_key(float biased, int expert) {
  const uint32_t bits = __float_as_uint(biased);
  const uint32_t ordered = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return (static_cast<uint64_t>(ordered) << 32) | (0xFFFFFFFFU - static_cast<uint32_t>(expert));
}

template <int kTiles, int kMaxThreads>  // tiles of 16 rows
__global__ void __launch_bounds__(kMaxThreads, 1) route_rows(RouteParams p) {
  extern __shared__ float partial[];  // [16 * kTiles][experts + 1]; then the scores of this block's rows [2 * kTiles][experts]
  const int pitch = p.experts + 1;
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int g = lane / 4;
  const int c = lane % 4;
  const uint32_t rank = cluster_rank();
  const int64_t first_row = static_cast<int64_t>(cluster_index()) * (16 * kTiles);
  const int row_chunks = p.width / 8;  // 16-byte chunks of a row
  const int steps = p.width / (32 * kRouteCluster);
  const int begin = static_cast<int>(rank) * steps * 4 + c;
  // The router is constant: its slice is fetched into L2 before the predecessor is waited for.
  for (int i = threadIdx.x; i < p.experts * (steps / 2); i += blockDim.x) {  // lines of 128 bytes: two steps
    const uint4* line =
        p.router + static_cast<int64_t>(i / (steps / 2)) * row_chunks + static_cast<int>(rank) * steps * 4 + i % (steps / 2) * 8;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(line));
  }
  wait_for_predecessor();
  allow_successor();

  float sum[kTiles][4][4] = {};
  const uint4* rows[kTiles][2];
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t row = first_row + 16 * t + 8 * h + g;
      rows[t][h] = p.x + (row < p.rows ? row : p.rows - 1) * row_chunks + begin;
    }
  const uint4* experts = p.router + static_cast<int64_t>(warp * kRouteWarpExperts + g) * row_chunks + begin;
#pragma unroll(kTiles == 1 ? (kMaxThreads > 288 ? 4 : 8) : kTiles == 2 ? 4 : 2)
  for (int step = 0; step < steps; ++step) {
    uint4 b[4];
    uint4 a[kTiles][2];
#pragma unroll
    for (int n = 0; n < 4; ++n) b[n] = __ldg(experts + static_cast<int64_t>(8 * n) * row_chunks + 4 * step);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      a[t][0] = __ldg(rows[t][0] + 4 * step);
      a[t][1] = __ldg(rows[t][1] + 4 * step);
    }
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        mma_bf16(sum[t][n], a[t][0].x, a[t][1].x, a[t][0].y, a[t][1].y, b[n].x, b[n].y);
        mma_bf16(sum[t][n], a[t][0].z, a[t][1].z, a[t][0].w, a[t][1].w, b[n].z, b[n].w);
      }
  }
#pragma unroll
  for (int t = 0; t < kTiles; ++t)
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        partial[(16 * t + g + 8 * (i / 2)) * pitch + warp * kRouteWarpExperts + 8 * n + 2 * c + i % 2] = sum[t][n][i];
  cluster_sync();

  // Rows 2 kTiles * rank ... of the cluster: one thread an expert adds the parts in the order of the blocks,
  constexpr int kRows = 2 * kTiles;
  float* scores = partial + 16 * kTiles * pitch;
  const int mine = static_cast<int>(rank) * kRows;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    float part[kRouteCluster];
#pragma unroll
    for (int q = 0; q < kRouteCluster; ++q) part[q] = load_remote(partial + (mine + r) * pitch + threadIdx.x, q);
    float logit = 0;
#pragma unroll
    for (int q = 0; q < kRouteCluster; ++q) logit += part[q];
    const float score = 1.0F / (1.0F + expf(-logit));
    scores[r * p.experts + threadIdx.x] = score;
    if (p.scores != nullptr && first_row + mine + r < p.rows) p.scores[(first_row + mine + r) * p.experts + threadIdx.x] = score;
  }
  __syncthreads();
  // then one warp a row chooses.
  constexpr int kMaxPerLane = kMaxThreads / 32;
  for (int r = warp; r < kRows; r += static_cast<int>(blockDim.x) / 32) {
    const int64_t row = first_row + mine + r;
    if (row >= p.rows) continue;
    float score[kMaxPerLane];
    uint64_t key[kMaxPerLane];
#pragma unroll
    for (int i = 0; i < kMaxPerLane; ++i) {
      const int e = lane + 32 * i;
      score[i] = e < p.experts ? scores[r * p.experts + e] : 0;
      key[i] = e < p.experts ? choice_key(score[i] + __ldg(p.bias + e), e) : 0;
    }
    float chosen = 0;  // of the choice number `lane`
    int id = 0;
    float total = 0;
    for (int j = 0; j < p.choices; ++j) {
      uint64_t best = 0;
#pragma unroll
      for (int i = 0; i < kMaxPerLane; ++i) best = key[i] > best ? key[i] : best;
      best = warp_max_key(best);
      const int e = static_cast<int>(0xFFFFFFFFU - static_cast<uint32_t>(best));
      float s = 0;
#pragma unroll
      for (int i = 0; i < kMaxPerLane; ++i)
        if (key[i] == best) {
          s = score[i];
          key[i] = 0;
        }
      s = __shfl_sync(0xFFFFFFFFU, s, e % 32);
      total += s;
      if (lane == j) {
        chosen = s;
        id = e;
      }
    }
    if (lane < p.choices) {
      p.ids[row * p.choices + lane] = id;
      p.weights[row * p.choices + lane] = p.renormalise ? p.scaling * chosen / (total + 1e-20F) : p.scaling * chosen;
    }
  }
  cluster_sync();  // peers may still read this block's partial sums
}

}  // namespace baton::cuda::moe
