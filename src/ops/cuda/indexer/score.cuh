// Scores of 8 neighbouring rows with all pooled keys of their sequence: I = key scale * sum_h w_h relu(q_h . k), e4m3 products.
//
// Keys are the M side (64 a tile), the 8 x 32 queries the N side, so that one pass over the keys serves the rows that verify together and a
// tile is four instructions. Two warpgroups take turns: one adds up its heads while the other's products run. Rows of several sequences in
// one group are passed over once a sequence.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/device/bulk_copy.cuh"
#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/device/reduce.cuh"
#include "ops/cuda/device/tensor_map.cuh"
#include "ops/cuda/device/wgmma.cuh"
#include "ops/cuda/device/wgmma_e4m3.cuh"
#include "ops/cuda/indexer/params.h"

namespace baton::cuda::indexer {

inline constexpr int kStages = 8;
inline constexpr int kTilePages = kTileKeys / kPageKeys;
inline constexpr int kColumns = kGroupRows * kHeads;
inline constexpr int kConsumers = 256;
inline constexpr int kScoreThreads = 384;
inline constexpr int kPageBytes = kPageKeys * kDim;

// Every consumer thread hands a stage back itself where the race checker should see it; one a warp is enough otherwise.
#ifdef BATON_RACECHECK
inline constexpr int kArrivingLanes = 32;
#else
inline constexpr int kArrivingLanes = 1;
#endif

struct ScoreShared {
  uint8_t queries[kColumns * kDim];         // K-major, 128-byte swizzle
  uint8_t keys[kStages][kTileKeys * kDim];  // likewise
  float key_scales[kStages][kTileKeys];
  float weights[kColumns];  // of a head: weight, both scales, heads^-1/2 dim^-1/2
  Barrier full[kStages];
  Barrier empty[kStages];
};

// The rows of one sequence in a group and the tiles that this block scores for them.
struct Run {
  int row;
  int end;
  int sequence;
  int pages;  // that hold closed pools
  int tile;
  int tile_end;
};

__device__ __forceinline__ Run next_run(const SelectParams& p, int row, int group_end, int split) {
  Run r;
  r.row = row;
  r.sequence = p.row_sequence[row];
  r.end = row + 1;
  while (r.end < group_end && p.row_sequence[r.end] == r.sequence) ++r.end;
  const int closed = (p.positions[r.end - 1] + 1) / kPool;  // of the last row, the most
  r.pages = closed > p.capacity ? (closed + kPageKeys - 1) / kPageKeys : 0;
  const int tiles = (r.pages + kTilePages - 1) / kTilePages;
  r.tile = tiles * split / p.splits;
  r.tile_end = tiles * (split + 1) / p.splits;
  return r;
}

// Smallest power of two that is not below amax / 448 (amax at least 1e-4), as the keys have it.
__device__ __forceinline__ float power_of_two_scale(float amax) {
  const uint32_t bits = __float_as_uint(fmaxf(amax, 1e-4F) / 448.0F);
  return __uint_as_float((bits + 0x7FFFFFU) & 0x7F800000U);
}

// One warp a row: Hadamard transform, scale and e4m3 of its 32 queries, 4 values a lane.
__device__ __forceinline__ void load_queries(const SelectParams& p, ScoreShared& s, int first_row, int warp) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int row = first_row + warp;
  const bool exists = row < p.rows;
#pragma unroll 4
  for (int h = 0; h < kHeads; ++h) {
    uint2 in = make_uint2(0, 0);
    if (exists) in = *reinterpret_cast<const uint2*>(p.q + (int64_t{row} * p.q_stride + h * kDim + lane * 4) * 2);
    const float a = bf16_low(in.x);
    const float b = bf16_high(in.x);
    const float c = bf16_low(in.y);
    const float d = bf16_high(in.y);
    float x[4] = {(a + b) + (c + d), (a - b) + (c - d), (a + b) - (c + d), (a - b) - (c - d)};
#pragma unroll
    for (int bit = 1; bit < 32; bit *= 2)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float other = __shfl_xor_sync(0xFFFFFFFFU, x[i], bit);
        x[i] = (lane & bit) != 0 ? other - x[i] : x[i] + other;
      }
    float largest = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] *= 0.08838834764831845F;  // 128^-1/2
      largest = fmaxf(largest, fabsf(x[i]));
    }
    const float scale = power_of_two_scale(lanes_max<1, 16>(largest));
    const float inverse = 1.0F / scale;
    const int column = warp * kHeads + h;
    *reinterpret_cast<uint32_t*>(s.queries + column * kDim + (((lane / 4) ^ (column & 7)) * 16) + lane % 4 * 4) =
        pack_e4m3x4(x[0] * inverse, x[1] * inverse, x[2] * inverse, x[3] * inverse);
    if (lane == 0)
      s.weights[column] = exists ? p.weights[int64_t{row} * p.weight_stride + h] * (1.0F / 64) * scale : 0.0F;  // (32 x 128)^-1/2 = 1/64
  }
}

__device__ __forceinline__ void produce_keys(const SelectParams& p, const CUtensorMap& map, ScoreShared& s, int first_row, int group_end,
                                             int split) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const uint64_t policy = policy_evict_normal();
  const int page_rows = static_cast<int>(p.page_stride / kDim);
  RingCursor cursor;
  for (int row = first_row; row < group_end;) {
    const Run run = next_run(p, row, group_end, split);
    row = run.end;
    const int32_t* table = p.page_tables + int64_t{run.sequence} * p.page_table_stride;
    for (int tile = run.tile; tile < run.tile_end; tile += 32 / kTilePages) {
      const int at = tile * kTilePages + lane;
      const int page = at < run.pages ? table[at] : 0;
      for (int i = 0; i < 32 / kTilePages && tile + i < run.tile_end; ++i) {
        s.empty[cursor.index].wait(cursor.parity ^ 1);
        const int count = min(kTilePages, run.pages - (tile + i) * kTilePages);
        Barrier& full = s.full[cursor.index];
        if (lane == 0) full.expect(static_cast<uint32_t>(count * (kPageBytes + kPageKeys * 4)));
        __syncwarp();
        const int k = lane - i * kTilePages;
        if (k >= 0 && k < count) {
          tensor_load(s.keys[cursor.index] + k * kPageBytes, map, 0, page * page_rows, full, policy);
          bulk_load(&s.key_scales[cursor.index][k * kPageKeys], p.pages + int64_t{page} * p.page_stride + kPageBytes, kPageKeys * 4, full);
        }
        cursor.advance(kStages);
      }
    }
  }
}

__device__ __forceinline__ void score_keys(const SelectParams& p, ScoreShared& s, int first_row, int group_end, int split, int group) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int warp = static_cast<int>(threadIdx.x) / 32 % 4;
  const int g = lane / 4;
  const int c = lane % 4;
  const uint64_t queries = swizzled_operand(s.queries);
  int number = 0;  // of the tile in this block: the warpgroups take turns
  for (int row = first_row; row < group_end;) {
    const Run run = next_run(p, row, group_end, split);
    row = run.end;
    for (int tile = run.tile; tile < run.tile_end; ++tile, ++number) {
      if ((number & 1) != group) continue;
      const int stage = number % kStages;
      s.full[stage].wait(number / kStages & 1);
      const uint64_t keys = swizzled_operand(s.keys[stage]);
      float d[128];
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < kDim / 32; ++k) WgmmaE4m3<256>::run(d, keys + 2 * k, queries + 2 * k, k > 0 ? 1 : 0);
      wgmma_commit();
      const float scale[2] = {s.key_scales[stage][warp * 16 + g], s.key_scales[stage][warp * 16 + g + 8]};
      wgmma_wait<0>();
      pin_registers(d);
      if (kArrivingLanes == 1) __syncwarp();
      if (lane < kArrivingLanes) s.empty[stage].arrive();
      float sum[kGroupRows][2];
#pragma unroll
      for (int r = 0; r < kGroupRows; ++r) {
        sum[r][0] = 0;
        sum[r][1] = 0;
#pragma unroll
        for (int j = 4 * r; j < 4 * r + 4; ++j) {
          const float2 w = *reinterpret_cast<const float2*>(&s.weights[8 * j + 2 * c]);
          sum[r][0] = fmaf(fmaxf(d[4 * j], 0.0F), w.x, sum[r][0]);
          sum[r][0] = fmaf(fmaxf(d[4 * j + 1], 0.0F), w.y, sum[r][0]);
          sum[r][1] = fmaf(fmaxf(d[4 * j + 2], 0.0F), w.x, sum[r][1]);
          sum[r][1] = fmaf(fmaxf(d[4 * j + 3], 0.0F), w.y, sum[r][1]);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          sum[r][i] += __shfl_xor_sync(0xFFFFFFFFU, sum[r][i], 1);
          sum[r][i] += __shfl_xor_sync(0xFFFFFFFFU, sum[r][i], 2);
        }
      }
#pragma unroll
      for (int r = 0; r < kGroupRows; ++r) {
        if (r % 4 != c || first_row + r < run.row || first_row + r >= run.end) continue;
        float* to = p.scores + (first_row + r) * p.score_stride + tile * kTileKeys + warp * 16 + g;
        to[0] = sum[r][0] * scale[0];
        to[8] = sum[r][1] * scale[1];
      }
    }
  }
}

__global__ void __launch_bounds__(kScoreThreads, 1)
    score_rows(const __grid_constant__ SelectParams p, const __grid_constant__ CUtensorMap map) {
  extern __shared__ __align__(1024) uint8_t raw[];
  auto& shared = *reinterpret_cast<ScoreShared*>(raw);
  if (threadIdx.x == 0) {
    if ((shared_address(raw) & 1023U) != 0) __trap();
    for (int i = 0; i < kStages; ++i) {
      shared.full[i].init(1);
      shared.empty[i].init(4 * kArrivingLanes);  // one warpgroup works on a stage
    }
    fence_barrier_init();
  }
  __syncthreads();
  allow_successor();
  wait_for_predecessor();
  const int split = static_cast<int>(blockIdx.x) % p.splits;
  const int first_row = static_cast<int>(blockIdx.x) / p.splits * kGroupRows;
  const int group_end = min(first_row + kGroupRows, p.rows);
  if (threadIdx.x >= kConsumers) {
    give_registers<24>();
    if (threadIdx.x < kConsumers + 32) produce_keys(p, map, shared, first_row, group_end, split);
  } else {
    take_registers<240>();
    load_queries(p, shared, first_row, static_cast<int>(threadIdx.x) / 32);
    fence_async_shared();
    named_barrier(1, kConsumers);
    const int group = static_cast<int>(__shfl_sync(0xFFFFFFFFU, threadIdx.x / 128, 0));
    score_keys(p, shared, first_row, group_end, split, group);
  }
}

}  // namespace baton::cuda::indexer
