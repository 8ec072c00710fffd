// Sorts (row, choice) entries by local expert and cuts the experts' rows into units of work.
//
// A block owns 1,024 rows, one a thread. A row names an expert at most once, so "which rows chose expert e" is a bit mask of 32 words in
// shared memory; counts and ranks are population counts of masks. Rows of an expert keep their order and nothing depends on timing.
// With several blocks, plan_count runs first and every block of plan_place sums the counts of the blocks before it.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/moe/expert_mlp_params.h"

namespace baton::cuda::moe {

inline constexpr int kPlanThreads = 1024;  // rows of a block
inline constexpr int kPlanWarps = kPlanThreads / 32;

struct PlanParams {
  const int32_t* ids;  // [rows, choices]
  int32_t rows;
  int32_t choices;
  int32_t first_expert;
  int32_t experts;
  int32_t tile_rows;
  bool even;              // units of an expert of equal size; otherwise full ones and a rest
  int32_t* block_counts;  // [blocks, experts]
  int32_t* row_slot;      // [rows, choices] slot, or -1 when the expert is not local
  Unit* units;
  uint32_t* control;
  uint32_t* ready;
};

// fn(value, j) for the choices of one row, four at a time where they are aligned: scattered 4-byte accesses cost a sector each.
template <bool kVector, class Fn>
__device__ __forceinline__ void each_choice(const PlanParams& p, int row, const Fn& fn) {
  if constexpr (kVector) {
#pragma unroll 2
    for (int j = 0; j < p.choices; j += 4) fn(__ldg(reinterpret_cast<const int4*>(p.ids + row * p.choices + j)), j);
  } else {
    for (int j = 0; j < p.choices; ++j) fn(make_int4(__ldg(p.ids + row * p.choices + j), -1, -1, -1), j);
  }
}

__device__ __forceinline__ int plan_expert(const PlanParams& p, int id) {
  const int e = id - p.first_expert;
  return e >= 0 && e < p.experts ? e : -1;
}

// masks[expert][warp]: bit l is set when row 32 * warp + l of the block chose the expert. Returns the row's index, or -1 past the end.
template <bool kVector>
__device__ __forceinline__ int plan_masks(const PlanParams& p, uint32_t* masks) {
  for (int i = threadIdx.x; i < p.experts * kPlanWarps; i += kPlanThreads) masks[i] = 0;
  __syncthreads();
  const int row = blockIdx.x * kPlanThreads + threadIdx.x;
  if (row < p.rows) {
    uint32_t* mine = masks + threadIdx.x / 32;
    const uint32_t bit = 1U << (threadIdx.x % 32);
    const auto mark = [&](int id) {
      const int e = plan_expert(p, id);
      if (e >= 0) atomicOr(mine + e * kPlanWarps, bit);
    };
    each_choice<kVector>(p, row, [&](int4 id, int) {
      mark(id.x);
      if constexpr (kVector) {
        mark(id.y);
        mark(id.z);
        mark(id.w);
      }
    });
  }
  __syncthreads();
  return row < p.rows ? row : -1;
}

// before[expert][warp]: rows of earlier warps that chose the expert; counts[expert]: rows of the block.
__device__ __forceinline__ void plan_prefixes(const PlanParams& p, const uint32_t* masks, int32_t* before, int32_t* counts) {
  const int lane = threadIdx.x % 32;
  for (int e = threadIdx.x / 32; e < p.experts; e += kPlanWarps) {
    const int own = __popc(masks[e * kPlanWarps + lane]);
    int sum = own;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int other = __shfl_up_sync(0xFFFFFFFFU, sum, d);
      if (lane >= d) sum += other;
    }
    before[e * kPlanWarps + lane] = sum - own;
    if (lane == 31) counts[e] = sum;
  }
  __syncthreads();
}

template <bool kVector>
__global__ void __launch_bounds__(kPlanThreads) plan_count(PlanParams p) {
  extern __shared__ uint32_t masks[];
  int32_t* before = reinterpret_cast<int32_t*>(masks + p.experts * kPlanWarps);
  int32_t* counts = before + p.experts * kPlanWarps;
  wait_for_predecessor();
  allow_successor();
  plan_masks<kVector>(p, masks);
  plan_prefixes(p, masks, before, counts);
  for (int e = threadIdx.x; e < p.experts; e += kPlanThreads) p.block_counts[blockIdx.x * p.experts + e] = counts[e];
}

// Exclusive prefix sums of two values a thread over the block, and their totals.
__device__ __forceinline__ int2 block_exclusive_sums(int2 value, int2* warp_sums, int2& total) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const auto inclusive = [&](int2 v) {
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int x = __shfl_up_sync(0xFFFFFFFFU, v.x, d);
      const int y = __shfl_up_sync(0xFFFFFFFFU, v.y, d);
      if (lane >= d) v = make_int2(v.x + x, v.y + y);
    }
    return v;
  };
  const int2 mine = inclusive(value);
  if (lane == 31) warp_sums[warp] = mine;
  __syncthreads();
  if (warp == 0) warp_sums[lane] = inclusive(warp_sums[lane]);
  __syncthreads();
  const int2 before = warp == 0 ? make_int2(0, 0) : warp_sums[warp - 1];
  total = warp_sums[kPlanWarps - 1];
  return make_int2(before.x + mine.x - value.x, before.y + mine.y - value.y);
}

__device__ __forceinline__ void plan_units(const PlanParams& p, int expert, int slot, int padded, int units, Unit* out) {
  const int groups = padded / 8;
  for (int u = 0; u < units; ++u) {
    const int rows = p.even ? 8 * (groups / units + (u < groups % units ? 1 : 0)) : min(p.tile_rows, padded - u * p.tile_rows);
    out[u] = Unit{expert, slot, rows, 0};
    slot += rows;
  }
}

template <bool kVector>
__global__ void __launch_bounds__(kPlanThreads) plan_place(PlanParams p) {
  extern __shared__ uint32_t masks[];  // [experts][warps], before[experts][warps], counts[experts]
  int32_t* before = reinterpret_cast<int32_t*>(masks + p.experts * kPlanWarps);
  int32_t* counts = before + p.experts * kPlanWarps;
  __shared__ int2 warp_sums[kPlanWarps];
  wait_for_predecessor();
  allow_successor();
  const int row = plan_masks<kVector>(p, masks);
  plan_prefixes(p, masks, before, counts);

  // Thread e: rows of expert e in earlier blocks and in all.
  const int e = threadIdx.x;
  int earlier = 0;
  int count = e < p.experts ? counts[e] : 0;
  if (gridDim.x > 1 && e < p.experts) {
    count = 0;
    for (int b = 0; b < static_cast<int>(gridDim.x); ++b) {
      const int c = p.block_counts[b * p.experts + e];
      earlier += b < static_cast<int>(blockIdx.x) ? c : 0;
      count += c;
    }
  }
  const int padded = (count + 7) / 8 * 8;
  const int units = (padded + p.tile_rows - 1) / p.tile_rows;
  int2 total;
  const int2 first = block_exclusive_sums(make_int2(padded, units), warp_sums, total);
  if (e < p.experts) counts[e] = first.x + earlier;  // from here on: first slot of this block's rows
  __syncthreads();
  if (row >= 0) {
    const uint32_t lower = (1U << (threadIdx.x % 32)) - 1;
    const auto slot_of = [&](int id) {
      const int local = plan_expert(p, id);
      if (local < 0) return -1;
      const int at = local * kPlanWarps + threadIdx.x / 32;
      return counts[local] + before[at] + __popc(masks[at] & lower);
    };
    each_choice<kVector>(p, row, [&](int4 id, int j) {
      int32_t* to = p.row_slot + row * p.choices + j;
      if constexpr (kVector) {
        *reinterpret_cast<int4*>(to) = make_int4(slot_of(id.x), slot_of(id.y), slot_of(id.z), slot_of(id.w));
      } else {
        *to = slot_of(id.x);
      }
    });
  }
  if (blockIdx.x == 0) {
    if (e < p.experts) plan_units(p, e, first.x, padded, units, p.units + first.y);
    if (threadIdx.x == 0) {
      p.control[0] = static_cast<uint32_t>(total.y);
      p.control[1] = 0;
    }
    for (int i = threadIdx.x; i < total.y; i += kPlanThreads) p.ready[i] = 0;
  }
}

}  // namespace baton::cuda::moe
