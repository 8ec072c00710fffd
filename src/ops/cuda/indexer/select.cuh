// The best pools of a row, ascending; ties to the lower pool. One block a row: the threshold by bisection over the ordered bits of the
// scores (counts need no memory and no order, so the result is exact and the same in every run), then one pass that writes.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/indexer/params.h"

namespace baton::cuda::indexer {

inline constexpr int kSelectThreads = 1024;
inline constexpr int kSelectWarps = kSelectThreads / 32;

// Scores as unsigned numbers in the same order; what is not a number counts as minus infinity, -0 as 0.
__device__ __forceinline__ uint32_t score_key(float x) {
  const uint32_t u = __float_as_uint(isnan(x) ? -__builtin_huge_valf() : x + 0.0F);
  return (u >> 31) != 0 ? ~u : u | 0x80000000U;
}

// kKept: scores that a thread keeps in registers; 0: it reads them again for every count.
template <int kKept>
class RowSelector {
 public:
  __device__ __forceinline__ RowSelector(const SelectParams& p, int row, int count)
      : scores_(p.scores + row * p.score_stride), pools_(p.pools + int64_t{row} * p.capacity), count_(count), wanted_(p.capacity),
        lane_(static_cast<int>(threadIdx.x) & 31), warp_(static_cast<int>(threadIdx.x) / 32) {}

  __device__ __forceinline__ void run(uint32_t (&shared)[2][kSelectWarps]) {
    if constexpr (kKept > 0)
#pragma unroll
      for (int j = 0; j < kKept; ++j) keys_[j] = load(j);
    // Every thread's largest: at least `wanted` scores reach the least of them, because as many threads hold one.
    uint32_t largest = 0;
    for_keys([&](int, uint32_t key) { largest = max(largest, key); });
    uint32_t low = __reduce_min_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) < count_ ? largest : 0xFFFFFFFFU);
    uint32_t high = __reduce_max_sync(0xFFFFFFFFU, largest);
    if (lane_ == 0) {
      shared[0][warp_] = low;
      shared[1][warp_] = high;
    }
    __syncthreads();
    low = __reduce_min_sync(0xFFFFFFFFU, shared[0][lane_]);
    high = __reduce_max_sync(0xFFFFFFFFU, shared[1][lane_]);
    __syncthreads();
    // count(>= low) >= wanted > count(> high)
    int turn = 0;
    bool exact = false;
    while (low < high && !exact) {
      const uint32_t middle = low + (high - low) / 2 + 1;
      const int reached = count_from(middle, shared[turn]);
      turn ^= 1;
      exact = reached == wanted_;
      if (reached >= wanted_) {
        low = middle;
      } else {
        high = middle - 1;
      }
    }
    __syncthreads();
    write(low, exact, shared);
  }

 private:
  __device__ __forceinline__ int index_of(int j) const { return j * kSelectThreads + static_cast<int>(threadIdx.x); }
  __device__ __forceinline__ uint32_t load(int j) const { return index_of(j) < count_ ? score_key(scores_[index_of(j)]) : 0; }
  __device__ __forceinline__ int parts() const { return (count_ + kSelectThreads - 1) / kSelectThreads; }
  template <class Fn>
  __device__ __forceinline__ void for_keys(const Fn& fn) const {
    if constexpr (kKept > 0) {
#pragma unroll
      for (int j = 0; j < kKept; ++j) fn(j, keys_[j]);
    } else {
      for (int j = 0; j < parts(); ++j) fn(j, load(j));
    }
  }

  // Scores that reach `bound` (> 0, so that places without a score do not count).
  __device__ __forceinline__ int count_from(uint32_t bound, uint32_t (&shared)[kSelectWarps]) const {
    uint32_t mine = 0;
    for_keys([&](int, uint32_t key) { mine += key >= bound ? 1 : 0; });
    mine = __reduce_add_sync(0xFFFFFFFFU, mine);
    if (lane_ == 0) shared[warp_] = mine;
    __syncthreads();
    return static_cast<int>(__reduce_add_sync(0xFFFFFFFFU, shared[lane_]));
  }

  // exact: what reaches the threshold is wanted; otherwise all above it, and the first of those that equal it.
  __device__ __forceinline__ void write(uint32_t threshold, bool exact, uint32_t (&shared)[2][kSelectWarps]) const {
    const int above = exact ? 0 : count_above(threshold, shared[0]);
    const int equal_wanted = exact ? wanted_ : wanted_ - above;
    __syncthreads();
    int above_before = 0;
    int equal_before = 0;
    for_keys([&](int j, uint32_t key) {
      const uint32_t above_lanes = __ballot_sync(0xFFFFFFFFU, key > threshold);
      const uint32_t equal_lanes = __ballot_sync(0xFFFFFFFFU, key == threshold && index_of(j) < count_);
      uint32_t(&counts)[kSelectWarps] = shared[j & 1];
      if (lane_ == 0) counts[warp_] = static_cast<uint32_t>(__popc(above_lanes)) | static_cast<uint32_t>(__popc(equal_lanes)) << 16;
      __syncthreads();
      const uint32_t all = counts[lane_];
      const uint32_t before = __reduce_add_sync(0xFFFFFFFFU, lane_ < warp_ ? all : 0);
      const uint32_t total = __reduce_add_sync(0xFFFFFFFFU, all);
      const uint32_t lower = (1U << lane_) - 1;
      const int my_above = above_before + static_cast<int>(before & 0xFFFF) + __popc(above_lanes & lower);
      const int my_equal = equal_before + static_cast<int>(before >> 16) + __popc(equal_lanes & lower);
      const bool equal = (equal_lanes >> lane_ & 1) != 0;
      if (key > threshold || (equal && my_equal < equal_wanted)) pools_[my_above + min(my_equal, equal_wanted)] = index_of(j);
      above_before += static_cast<int>(total & 0xFFFF);
      equal_before += static_cast<int>(total >> 16);
    });
  }
  __device__ __forceinline__ int count_above(uint32_t threshold, uint32_t (&shared)[kSelectWarps]) const {
    return threshold == 0xFFFFFFFFU ? 0 : count_from(threshold + 1, shared);
  }

  const float* scores_;
  int32_t* pools_;
  const int count_, wanted_, lane_, warp_;
  uint32_t keys_[kKept > 0 ? kKept : 1];
};

template <int kKept>
__global__ void __launch_bounds__(kSelectThreads, kKept > 16 ? 1 : 2) select_rows(const __grid_constant__ SelectParams p) {
  __shared__ uint32_t shared[2][kSelectWarps];
  wait_for_predecessor();
  allow_successor();
  const int row = static_cast<int>(blockIdx.x);
  const int closed = (p.positions[row] + 1) / kPool;
  if (threadIdx.x == 0) {
    p.counts[row] = min(closed, p.capacity);
    p.tail_begin[row] = closed * kPool;
  }
  if (closed <= p.capacity) {
    for (int i = static_cast<int>(threadIdx.x); i < closed; i += kSelectThreads) p.pools[int64_t{row} * p.capacity + i] = i;
    return;
  }
  RowSelector<kKept> selector(p, row, closed);
  selector.run(shared);
}

}  // namespace baton::cuda::indexer
