// Scores of 8 neighbouring rows with all pooled keys of their sequence: I = key scale * sum_h w_h relu(q_h . k), e4m3 products.
//
// Keys are the M side (64 a tile), the 8 x 32 queries the N side, so that one pass over the keys serves the rows that verify together and a
// tile is four instructions. Two warpgroups take turns: one adds up its heads while the other's products run. Four warps bring keys, each
// every fourth tile: the copies of a warp start one after the other. Rows of several sequences in one group are passed over once a
// sequence.
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
inline constexpr int kProducerWarps = 4;
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
  // Of a head: weight, scale of its query, heads^-1/2 dim^-1/2. weights[c] holds the columns of lane c of a quad, 8 j + 2 c and the next;
  // padding keeps the lanes in different banks.
  float weights[4][kColumns / 4 + 4];
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

// One warp a row: Hadamard transform, scale and e4m3 of its 32 queries. A head lies in a quad of lanes, 32 values each, so that most of the
// transform stays in registers; its steps go from neighbours to halves, as the CPU's.
__device__ __forceinline__ void load_queries(const SelectParams& p, ScoreShared& s, int first_row, int warp) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int c = lane % 4;
  const int row = first_row + warp;
  const bool exists = row < p.rows;
#pragma unroll 1
  for (int first = 0; first < kHeads; first += 8) {
    const int h = first + lane / 4;
    float x[32];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      uint4 in = make_uint4(0, 0, 0, 0);
      if (exists) in = *reinterpret_cast<const uint4*>(p.q + (int64_t{row} * p.q_stride + h * kDim + c * 32 + i * 8) * 2);
      x[8 * i] = bf16_low(in.x), x[8 * i + 1] = bf16_high(in.x), x[8 * i + 2] = bf16_low(in.y), x[8 * i + 3] = bf16_high(in.y);
      x[8 * i + 4] = bf16_low(in.z), x[8 * i + 5] = bf16_high(in.z), x[8 * i + 6] = bf16_low(in.w), x[8 * i + 7] = bf16_high(in.w);
    }
#pragma unroll
    for (int half = 1; half < 32; half *= 2)
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if ((i & half) == 0) {
          const float a = x[i];
          const float b = x[i + half];
          x[i] = a + b;
          x[i + half] = a - b;
        }
#pragma unroll
    for (int bit = 1; bit < 4; bit *= 2)
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const float other = __shfl_xor_sync(0xFFFFFFFFU, x[i], bit);
        x[i] = (lane & bit) != 0 ? other - x[i] : x[i] + other;
      }
    float largest = 0;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      x[i] *= 0.08838834764831845F;  // 128^-1/2
      largest = fmaxf(largest, fabsf(x[i]));
    }
    const float scale = power_of_two_scale(lanes_max<1, 2>(largest));
    const float inverse = 1.0F / scale;
    const int column = warp * kHeads + h;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      uint32_t codes[4];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const int at = 16 * i + 4 * w;
        codes[w] = pack_e4m3x4(x[at] * inverse, x[at + 1] * inverse, x[at + 2] * inverse, x[at + 3] * inverse);
      }
      *reinterpret_cast<uint4*>(s.queries + column * kDim + ((2 * c + i) ^ (column & 7)) * 16) =
          make_uint4(codes[0], codes[1], codes[2], codes[3]);
    }
    if (c == 0)
      s.weights[column % 8 / 2][column / 8 * 2 + column % 2] =
          exists ? p.weights[int64_t{row} * p.weight_stride + h] * (1.0F / 64) * scale : 0.0F;  // (32 x 128)^-1/2 = 1/64
  }
}

// Every fourth tile of the block, counted over its runs; a lane looks up one page of eight tiles, one batch ahead.
__device__ __forceinline__ void produce_keys(const SelectParams& p, const CUtensorMap& map, ScoreShared& s, int first_row, int group_end,
                                             int split, int warp) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const uint64_t policy = policy_evict_normal();
  const int page_rows = static_cast<int>(p.page_stride / kDim);
  int number = 0;  // of the run's first tile
  for (int row = first_row; row < group_end;) {
    const Run run = next_run(p, row, group_end, split);
    row = run.end;
    const int32_t* table = p.page_tables + int64_t{run.sequence} * p.page_table_stride;
    const int tiles = run.tile_end - run.tile;
    const auto page_of_lane = [&](int i) {
      const int at = (run.tile + i + lane / kTilePages * kProducerWarps) * kTilePages + lane % kTilePages;
      return at < run.pages ? table[at] : 0;
    };
    int i = (warp - number) & (kProducerWarps - 1);
    int next = page_of_lane(i);
    while (i < tiles) {
      const int page = next;
      next = page_of_lane(i + 32 / kTilePages * kProducerWarps);
      for (int j = 0; j < 32 / kTilePages && i < tiles; ++j, i += kProducerWarps) {
        const int stage = (number + i) % kStages;
        s.empty[stage].wait(((number + i) / kStages & 1) ^ 1);
        const int count = min(kTilePages, run.pages - (run.tile + i) * kTilePages);
        Barrier& full = s.full[stage];
        if (lane == 0) full.expect(static_cast<uint32_t>(count * (kPageBytes + kPageKeys * 4)));
        __syncwarp();
        const int k = lane - j * kTilePages;
        if (k >= 0 && k < count) {
          tensor_load(s.keys[stage] + k * kPageBytes, map, 0, page * page_rows, full, policy);
          bulk_load(&s.key_scales[stage][k * kPageKeys], p.pages + int64_t{page} * p.page_stride + kPageBytes, kPageKeys * 4, full);
        }
      }
    }
    number += tiles;
  }
}

// Sums over a quad of 8 rows x 2 keys: lane c gets those of rows c and c + 4.
__device__ __forceinline__ void quad_rows(const float (&sum)[kGroupRows][2], int c, float (&mine)[2][2]) {
  float half[4][2];  // of rows 2 n + c % 2, two lanes
#pragma unroll
  for (int n = 0; n < 4; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float keep = c % 2 != 0 ? sum[2 * n + 1][i] : sum[2 * n][i];
      const float send = c % 2 != 0 ? sum[2 * n][i] : sum[2 * n + 1][i];
      half[n][i] = keep + __shfl_xor_sync(0xFFFFFFFFU, send, 1);
    }
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float keep = c / 2 != 0 ? half[2 * n + 1][i] : half[2 * n][i];
      const float send = c / 2 != 0 ? half[2 * n][i] : half[2 * n + 1][i];
      mine[n][i] = keep + __shfl_xor_sync(0xFFFFFFFFU, send, 2);
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
        for (int j = 4 * r; j < 4 * r + 4; j += 2) {
          const float4 w = *reinterpret_cast<const float4*>(&s.weights[c][2 * j]);
          sum[r][0] = fmaf(fmaxf(d[4 * j], 0.0F), w.x, sum[r][0]);
          sum[r][0] = fmaf(fmaxf(d[4 * j + 1], 0.0F), w.y, sum[r][0]);
          sum[r][1] = fmaf(fmaxf(d[4 * j + 2], 0.0F), w.x, sum[r][1]);
          sum[r][1] = fmaf(fmaxf(d[4 * j + 3], 0.0F), w.y, sum[r][1]);
          sum[r][0] = fmaf(fmaxf(d[4 * j + 4], 0.0F), w.z, sum[r][0]);
          sum[r][0] = fmaf(fmaxf(d[4 * j + 5], 0.0F), w.w, sum[r][0]);
          sum[r][1] = fmaf(fmaxf(d[4 * j + 6], 0.0F), w.z, sum[r][1]);
          sum[r][1] = fmaf(fmaxf(d[4 * j + 7], 0.0F), w.w, sum[r][1]);
        }
      }
      float mine[2][2];
      quad_rows(sum, c, mine);
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        const int r = first_row + c + 4 * n;
        if (r < run.row || r >= run.end) continue;
        float* to = p.scores + r * p.score_stride + tile * kTileKeys + warp * 16 + g;
        to[0] = mine[n][0] * scale[0];
        to[8] = mine[n][1] * scale[1];
      }
    }
  }
}

__global__ void __launch_bounds__(kScoreThreads, 1)
    score_rows(const __grid_constant__ SelectParams p, const __grid_constant__ CUtensorMap map) {
  extern __shared__ __align__(1024) std::byte shared_memory[];
  auto& shared = *reinterpret_cast<ScoreShared*>(shared_memory);
  if (threadIdx.x == 0) {
    if ((shared_address(shared_memory) & 1023U) != 0) __trap();
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
    give_registers<40>();
    produce_keys(p, map, shared, first_row, group_end, split, static_cast<int>(threadIdx.x - kConsumers) / 32);
  } else {
    take_registers<232>();
    load_queries(p, shared, first_row, static_cast<int>(threadIdx.x) / 32);
    fence_async_shared();
    named_barrier(1, kConsumers);
    const int group = static_cast<int>(__shfl_sync(0xFFFFFFFFU, threadIdx.x / 128, 0));
    score_keys(p, shared, first_row, group_end, split, group);
  }
}

}  // namespace baton::cuda::indexer
