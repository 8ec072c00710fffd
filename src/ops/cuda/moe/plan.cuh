// Sorts (row, choice) entries by local expert and cuts the experts' rows into units of work.
//
// Stable counting sort: every warp owns a contiguous run of entries, ranks equal experts inside 32 entries by matching, and keeps its counts in
// shared memory. Rows of an expert keep their order, so slots do not depend on timing. A row never names an expert twice.
// With several blocks, plan_count runs first and every block of plan_place sums the counts of the blocks before it.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/moe/expert_mlp_params.h"

namespace baton::cuda::moe {

inline constexpr int kPlanThreads = 1024;
inline constexpr int kPlanWarps = kPlanThreads / 32;

struct PlanParams {
  const int32_t* ids;
  int32_t entries;         // rows * choices
  int32_t first_expert;
  int32_t experts;
  int32_t tile_rows;
  int32_t cluster;
  int32_t per_warp;        // entries of a warp, a multiple of 32
  int32_t* block_counts;   // [blocks, experts]
  int32_t* row_slot;       // [entries] slot, or -1 when the expert is not local
  Unit* units;
  uint32_t* control;
  uint32_t* ready;
};

inline constexpr int kPlanHeld = 8;  // entries that a lane keeps in registers: the ids are read once, all loads in flight together

__device__ __forceinline__ int plan_expert(const PlanParams& p, int entry, int end) {
  if (entry >= end) return -1;
  const int e = __ldg(p.ids + entry) - p.first_expert;
  return e >= 0 && e < p.experts ? e : -1;
}

// Entries of this warp; a lane holds begin + lane, begin + lane + 32, ...
struct PlanRun {
  int begin;
  int end;
  int held[kPlanHeld];
  __device__ __forceinline__ explicit PlanRun(const PlanParams& p) {
    begin = static_cast<int>(blockIdx.x * kPlanWarps + threadIdx.x / 32) * p.per_warp;
    end = min(begin + p.per_warp, p.entries);
#pragma unroll
    for (int i = 0; i < kPlanHeld; ++i) held[i] = plan_expert(p, begin + 32 * i + static_cast<int>(threadIdx.x % 32), end);
  }
  // fn(expert or -1, entry) for every 32 entries, in order.
  template <class Fn>
  __device__ __forceinline__ void each(const PlanParams& p, const Fn& fn) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < kPlanHeld; ++i)
      if (begin + 32 * i < end) fn(held[i], begin + 32 * i + lane);
    for (int at = begin + 32 * kPlanHeld; at < end; at += 32) fn(plan_expert(p, at + lane, end), at + lane);
  }
};

// counts[warp][expert] of this block's entries.
__device__ __forceinline__ void plan_histogram(const PlanParams& p, const PlanRun& run, int32_t* counts) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  int32_t* mine = counts + warp * p.experts;
  for (int i = lane; i < p.experts; i += 32) mine[i] = 0;
  __syncwarp();
  run.each(p, [&](int e, int) {
    const uint32_t same = __match_any_sync(0xFFFFFFFFU, e);
    if (e >= 0 && lane == __ffs(same) - 1) mine[e] += __popc(same);
    __syncwarp();
  });
  __syncthreads();
}

__global__ void __launch_bounds__(kPlanThreads) plan_count(PlanParams p) {
  extern __shared__ int32_t counts[];
  wait_for_predecessor();
  allow_successor();
  const PlanRun run(p);
  plan_histogram(p, run, counts);
  for (int e = threadIdx.x; e < p.experts; e += kPlanThreads) {
    int sum = 0;
    for (int w = 0; w < kPlanWarps; ++w) sum += counts[w * p.experts + e];
    p.block_counts[blockIdx.x * p.experts + e] = sum;
  }
}

// Exclusive prefix sum of one value per thread over the block; the total is returned in `total`.
__device__ __forceinline__ int block_exclusive_sum(int value, int32_t* warp_sums, int& total) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  int inclusive = value;
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const int other = __shfl_up_sync(0xFFFFFFFFU, inclusive, d);
    if (lane >= d) inclusive += other;
  }
  __syncthreads();
  if (lane == 31) warp_sums[warp] = inclusive;
  __syncthreads();
  int before = 0;
  total = 0;
#pragma unroll
  for (int w = 0; w < kPlanWarps; ++w) {
    const int s = warp_sums[w];
    before += w < warp ? s : 0;
    total += s;
  }
  return before + inclusive - value;
}

__global__ void __launch_bounds__(kPlanThreads) plan_place(PlanParams p) {
  extern __shared__ int32_t counts[];  // [warps][experts], then [warps] sums
  int32_t* warp_sums = counts + kPlanWarps * p.experts;
  wait_for_predecessor();
  allow_successor();
  const PlanRun run(p);
  plan_histogram(p, run, counts);

  // Thread e: rows of expert e in earlier blocks, in all blocks, and in the earlier warps of this block.
  const int e = threadIdx.x;
  int before = 0;
  int count = 0;
  if (e < p.experts) {
    if (gridDim.x == 1) {
#pragma unroll
      for (int w = 0; w < kPlanWarps; ++w) count += counts[w * p.experts + e];
    } else {
      for (int b = 0; b < static_cast<int>(gridDim.x); ++b) {
        const int c = p.block_counts[b * p.experts + e];
        before += b < static_cast<int>(blockIdx.x) ? c : 0;
        count += c;
      }
    }
  }
  int total = 0;
  const int padded = (count + 7) / 8 * 8;
  const int slot = block_exclusive_sum(e < p.experts ? padded : 0, warp_sums, total);
  const int group_rows = p.tile_rows * p.cluster;
  const int groups = (count + group_rows - 1) / group_rows;
  int units = 0;
  const int first_unit = block_exclusive_sum(e < p.experts ? groups : 0, warp_sums, units);
  if (e < p.experts) {
    int running = slot + before;
    for (int first = 0; first < kPlanWarps; first += 8) {
      int c[8];
#pragma unroll
      for (int w = 0; w < 8; ++w) c[w] = counts[(first + w) * p.experts + e];
#pragma unroll
      for (int w = 0; w < 8; ++w) {
        counts[(first + w) * p.experts + e] = running;
        running += c[w];
      }
    }
    if (blockIdx.x == 0) {
      // Even blocks: the largest of an expert is at most one group of 8 larger than the smallest.
      const int blocks = groups * p.cluster;
      const int groups8 = padded / 8;
      int at = slot;
      for (int u = 0; u < groups; ++u) {
        int rows[2] = {0, 0};
        for (int b = 0; b < p.cluster; ++b) {
          const int i = u * p.cluster + b;
          rows[b] = 8 * (groups8 / blocks + (i < groups8 % blocks ? 1 : 0));
        }
        p.units[first_unit + u] = Unit{e, at, rows[0], rows[1]};
        at += rows[0] + rows[1];
      }
    }
  }
  if (blockIdx.x == 0) {
    if (threadIdx.x == 0) {
      p.control[0] = static_cast<uint32_t>(units);
      p.control[1] = 0;
    }
    for (int i = threadIdx.x; i < units * p.cluster; i += kPlanThreads) p.ready[i] = 0;
  }
  __syncthreads();

  const int lane = threadIdx.x % 32;
  int32_t* next = counts + threadIdx.x / 32 * p.experts;
  run.each(p, [&](int local, int entry) {
    const uint32_t same = __match_any_sync(0xFFFFFFFFU, local);
    int target = -1;
    if (local >= 0) target = next[local] + __popc(same & ((1U << lane) - 1));
    __syncwarp();
    if (local >= 0 && lane == __ffs(same) - 1) next[local] += __popc(same);
    __syncwarp();
    if (entry < run.end) p.row_slot[entry] = target;
  });
}

}  // namespace baton::cuda::moe
