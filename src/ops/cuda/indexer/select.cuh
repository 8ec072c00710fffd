// The best pools of a row, ascending; ties to the lower pool. One block a row: a threshold by bisection over the ordered bits of the scores
// (counts have no order, so the result is exact and the same in every run), then one pass that writes.
//
// Counting all scores again and again is what takes time, so the bisection runs twice on one number a thread: first over the threads'
// largest scores, which gives a bound that at least `wanted` scores reach; then over the scores that reach it, some 700 of 16,384 where 512
// are wanted. Where those are more than threads (as many wanted as threads, equal scores), all scores are counted instead.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/indexer/params.h"

namespace baton::cuda::indexer {

inline constexpr int kSelectThreads = 1024;
inline constexpr int kSelectWarps = kSelectThreads / 32;
inline constexpr int kMostKept = 32;

struct SelectShared {
  uint32_t warp[2][kSelectWarps];
  uint32_t found;  // candidates
  uint32_t candidates[kSelectThreads];
  uint32_t above[kMostKept * kSelectWarps];   // a bit a score, in order: which of 32 scores lie above the threshold
  uint32_t equal[kMostKept * kSelectWarps];   // and which equal it
  uint32_t before[kMostKept * kSelectWarps];  // how many are above, + how many equal << 11, in the words before
};

// Scores as unsigned numbers in the same order; what is not a number counts as minus infinity, -0 as 0.
__device__ __forceinline__ uint32_t score_key(float x) {
  const uint32_t u = __float_as_uint(isnan(x) ? -__builtin_huge_valf() : x + 0.0F);
  return (u >> 31) != 0 ? ~u : u | 0x80000000U;
}

// The largest bound in [low, high] that at least `wanted` keys reach, or one that exactly as many reach (`exact`).
// count(bound): how many do, of bound > 0. On entry count(low) >= wanted > count(high + 1).
template <class Count>
__device__ __forceinline__ uint32_t bisect(uint32_t low, uint32_t high, int wanted, bool& exact, const Count& count) {
  exact = false;
  while (low < high && !exact) {
    const uint32_t middle = low + (high - low) / 2 + 1;
    const int reached = count(middle);
    exact = reached == wanted;
    if (reached >= wanted) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// kKept: scores that a thread keeps in registers; 0: it reads them again for every count.
template <int kKept>
class RowSelector {
 public:
  __device__ __forceinline__ RowSelector(const SelectParams& p, int row, int count, SelectShared& shared)
      : scores_(p.scores + row * p.score_stride), pools_(p.pools + int64_t{row} * p.capacity), count_(count), wanted_(p.capacity),
        lane_(static_cast<int>(threadIdx.x) & 31), warp_(static_cast<int>(threadIdx.x) / 32), s_(shared) {}

  __device__ __forceinline__ void run() {
    if constexpr (kKept > 0)
#pragma unroll
      for (int j = 0; j < kKept; ++j) keys_[j] = load(j);
    uint32_t largest = 0;  // 0: the thread has no score
    for_keys([&](int, uint32_t key) { largest = max(largest, key); });
    uint32_t low = 0;
    uint32_t high = 0;
    extremes(largest, low, high);
    bool exact = false;
    // As many threads as are wanted hold a score that reaches this.
    low = bisect(low, high, wanted_, exact, [&](uint32_t bound) { return __syncthreads_count(largest >= bound ? 1 : 0); });
    const int candidates = collect(low);
    if (candidates <= kSelectThreads) {
      const uint32_t key = static_cast<int>(threadIdx.x) < candidates ? s_.candidates[threadIdx.x] : 0;
      exact = candidates == wanted_;
      if (!exact) low = bisect(low, high, wanted_, exact, [&](uint32_t bound) { return __syncthreads_count(key >= bound ? 1 : 0); });
    } else {
      int turn = 0;
      low = bisect(low, high, wanted_, exact, [&](uint32_t bound) { return count_from(bound, s_.warp[turn ^= 1]); });
    }
    __syncthreads();
    // All that reach an exact threshold are wanted; otherwise all above it, and the first of those that equal it.
    const uint32_t above = exact ? low - 1 : low;
    if constexpr (kKept > 0)
      write_kept(above);
    else
      write(above);
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

  // The least and the largest of the threads' largest scores. At least `wanted` threads hold a score.
  __device__ __forceinline__ void extremes(uint32_t largest, uint32_t& low, uint32_t& high) const {
    low = __reduce_min_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) < count_ ? largest : 0xFFFFFFFFU);
    high = __reduce_max_sync(0xFFFFFFFFU, largest);
    if (lane_ == 0) {
      s_.warp[0][warp_] = low;
      s_.warp[1][warp_] = high;
    }
    if (threadIdx.x == 0) s_.found = 0;
    __syncthreads();
    low = __reduce_min_sync(0xFFFFFFFFU, s_.warp[0][lane_]);
    high = __reduce_max_sync(0xFFFFFFFFU, s_.warp[1][lane_]);
    __syncthreads();
  }

  // How many scores reach `bound` (> 0); as many of them as there are threads go to shared memory, in no order.
  __device__ __forceinline__ int collect(uint32_t bound) const {
    uint32_t mine = 0;
    for_keys([&](int, uint32_t key) { mine += key >= bound ? 1 : 0; });
    uint32_t end = mine;  // of this thread's, in its warp
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const uint32_t other = __shfl_up_sync(0xFFFFFFFFU, end, step);
      if (lane_ >= step) end += other;
    }
    uint32_t first = 0;
    if (lane_ == 31 && end > 0) first = atomicAdd(&s_.found, end);
    uint32_t at = __shfl_sync(0xFFFFFFFFU, first, 31) + end - mine;
    for_keys([&](int, uint32_t key) {
      if (key >= bound && at < kSelectThreads) s_.candidates[at] = key;
      at += key >= bound ? 1 : 0;
    });
    __syncthreads();
    return static_cast<int>(s_.found);
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

  // A word of bits for 32 neighbouring scores, a thread a word for the sums before it.
  __device__ __forceinline__ void write_kept(uint32_t threshold) const {
    constexpr int kWords = kKept * kSelectWarps;
#pragma unroll
    for (int j = 0; j < kKept; ++j) {
      const uint32_t above = __ballot_sync(0xFFFFFFFFU, keys_[j] > threshold);
      const uint32_t equal = __ballot_sync(0xFFFFFFFFU, keys_[j] == threshold && index_of(j) < count_);
      if (lane_ == j) {
        s_.above[j * kSelectWarps + warp_] = above;
        s_.equal[j * kSelectWarps + warp_] = equal;
      }
    }
    __syncthreads();
    const auto thread = static_cast<int>(threadIdx.x);
    // At most 1,023 are above, so both counts fit a word.
    const uint32_t mine =
        thread < kWords ? static_cast<uint32_t>(__popc(s_.above[thread])) + (static_cast<uint32_t>(__popc(s_.equal[thread])) << 11) : 0;
    uint32_t end = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const uint32_t other = __shfl_up_sync(0xFFFFFFFFU, end, step);
      if (lane_ >= step) end += other;
    }
    if (lane_ == 31) s_.warp[0][warp_] = end;
    __syncthreads();
    const uint32_t warps = s_.warp[0][lane_];
    const uint32_t earlier = __reduce_add_sync(0xFFFFFFFFU, lane_ < warp_ ? warps : 0);
    const uint32_t all = __reduce_add_sync(0xFFFFFFFFU, warps);
    if (thread < kWords) s_.before[thread] = earlier + end - mine;
    __syncthreads();
    const int equal_wanted = wanted_ - static_cast<int>(all & 2047);
    const uint32_t lower = (1U << lane_) - 1;
#pragma unroll
    for (int j = 0; j < kKept; ++j) {
      const int word = j * kSelectWarps + warp_;
      const uint32_t above = s_.above[word];
      const uint32_t equal = s_.equal[word];
      if (((above | equal) >> lane_ & 1) == 0) continue;
      const int above_before = static_cast<int>(s_.before[word] & 2047) + __popc(above & lower);
      const int equal_before = static_cast<int>(s_.before[word] >> 11) + __popc(equal & lower);
      if ((above >> lane_ & 1) != 0 || equal_before < equal_wanted) pools_[above_before + min(equal_before, equal_wanted)] = index_of(j);
    }
  }

  // The same, score by score of a thread.
  __device__ __forceinline__ void write(uint32_t threshold) const {
    const int above_all = threshold == 0xFFFFFFFFU ? 0 : count_from(threshold + 1, s_.warp[0]);
    const int equal_wanted = wanted_ - above_all;
    __syncthreads();
    int above_before = 0;
    int equal_before = 0;
    for_keys([&](int j, uint32_t key) {
      const uint32_t above_lanes = __ballot_sync(0xFFFFFFFFU, key > threshold);
      const uint32_t equal_lanes = __ballot_sync(0xFFFFFFFFU, key == threshold && index_of(j) < count_);
      uint32_t(&counts)[kSelectWarps] = s_.warp[j & 1];
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

  const float* scores_;
  int32_t* pools_;
  const int count_, wanted_, lane_, warp_;
  SelectShared& s_;
  uint32_t keys_[kKept > 0 ? kKept : 1];
};

template <int kKept>
__global__ void __launch_bounds__(kSelectThreads, kKept > 16 ? 1 : 2) select_rows(const __grid_constant__ SelectParams p) {
  extern __shared__ __align__(1024) std::byte shared_memory[];
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
  RowSelector<kKept> selector(p, row, closed, *reinterpret_cast<SelectShared*>(shared_memory));
  selector.run();
}

}  // namespace baton::cuda::indexer
