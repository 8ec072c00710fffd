// Sparse latent attention for many rows with BF16 cache rows: one block a row, 64 heads, 64 tokens a tile.
//
// Heads are the M side and everything that is multiplied lies in shared memory as it came: no conversion, no register operand. Two
// warpgroups: group 0 scores the even tiles, group 1 the odd ones, and each adds half of the dimensions of both, so that one's exponents
// run under the other's products. They hand each other weights and references through `ready`; the chain of references runs through the
// tiles in order, so the bits of a row depend on nothing but its tokens. Four producer warps gather rows of 1,024 bytes, two for each of
// the two tiles that fit.
#pragma once

#include <cuda_runtime.h>

#include "ops/batch.h"
#include "ops/cuda/device/async_copy.cuh"
#include "ops/cuda/device/bulk_copy.cuh"
#include "ops/cuda/device/fast_math.cuh"
#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/device/wgmma.cuh"
#include "ops/cuda/device/wgmma_bf16.cuh"
#include "ops/cuda/mla_sparse/attend_queries.cuh"
#include "ops/cuda/mla_sparse/prefill_shared.cuh"

namespace baton::cuda::mla {

// Rows of every other tile: 32 of its tokens a warp, one lane looks up one.
__device__ __forceinline__ void gather_rows(const AttendParams& p, PrefillShared& s, const Item& item, int warp) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int parity = warp / 2;
  const int first = warp % 2 * 32;
  const int pooled = p.counts[item.row] << p.pool_log2;
  const int tail_begin = p.tail_begin[item.row];
  const int32_t* pools = p.pools + int64_t{item.row} * p.pool_capacity;
  const int32_t* pages = p.page_tables + int64_t{p.row_sequence[item.row]} * p.page_table_stride;
  const auto source = [&](int tile) -> const std::byte* {
    const int token = tile * kPrefillTokens + first + lane;
    if (token >= item.count) return nullptr;
    const int position =
        token < pooled ? (pools[token >> p.pool_log2] << p.pool_log2) + (token & ((1 << p.pool_log2) - 1)) : tail_begin + token - pooled;
    const auto page = static_cast<uint32_t>(position) / ops::kPageTokens;
    return p.pages + int64_t{pages[page]} * p.page_stride + static_cast<uint32_t>(position) % ops::kPageTokens * (kDim * 2);
  };
  const int tiles = (item.count + kPrefillTokens - 1) / kPrefillTokens;
  const std::byte* next = source(parity);
  uint32_t lap = 0;
  for (int tile = parity; tile < tiles; tile += 2, ++lap) {
    const std::byte* row = next;
    next = source(tile + 2);
    if (next != nullptr)
#pragma unroll
      for (int line = 0; line < kDim * 2 / 128; ++line) prefetch_line(next + line * 128);
    s.empty[parity].wait((lap & 1) ^ 1);
#pragma unroll 4
    for (int r = 0; r < 32; ++r) {
      const auto from = reinterpret_cast<const std::byte*>(__shfl_sync(0xFFFFFFFFU, reinterpret_cast<unsigned long long>(row), r));
      const int token = first + r;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int chunk = lane + 32 * i;
        uint8_t* to = s.rows[parity][chunk / 8] + token * 128 + ((chunk % 8) ^ (token % 8)) * 16;
        if (from != nullptr)
          async_copy16(to, from + chunk * 16);
        else  // behind the last token: it meets weights of zero and must be a number
          *reinterpret_cast<uint4*>(to) = make_uint4(0, 0, 0, 0);
      }
    }
    async_commit();
    async_wait<0>();
    fence_async_shared();
    s.full[parity].arrive();
  }
}

class PrefillConsumer {
 public:
  __device__ __forceinline__ PrefillConsumer(const AttendParams& p, PrefillShared& s, const Item& item, int group)
      : p_(p), s_(s), item_(item), group_(group), lane_(static_cast<int>(threadIdx.x) & 31), warp_(static_cast<int>(threadIdx.x) / 32 % 4),
        c_(lane_ % 4), head_(warp_ * 16 + lane_ / 4) {}

  __device__ __forceinline__ void run() {
    load_queries<Bf16Rows>(p_, s_.q, s_.head_factor, item_, group_ * 4 + warp_);
#pragma unroll
    for (float& o : out_) o = 0;
    fence_async_shared();
    named_barrier(kAll, kConsumerThreads);
    const int tiles = (item_.count + kPrefillTokens - 1) / kPrefillTokens;
    uint32_t lap = 0;
    for (int tile = 0; tile < tiles; tile += 2, ++lap) {
      const bool second = tile + 1 < tiles;
      const int left = item_.count - tile * kPrefillTokens;
      if (group_ == 0) {
        score(0, lap);
        weigh(0, left);
        scale();
        add(0, lap);
        if (second) {
          s_.ready[1].wait(lap & 1);
          finish(0);
          follow(1);
          scale();
          add(1, lap);
        }
      } else {
        if (second) score(1, lap);
        s_.ready[0].wait(lap & 1);
        follow(0);
        scale();
        add(0, lap);
        if (second) {
          weigh(1, left - kPrefillTokens);  // under the products of the even tile
          finish(0);
          scale();
          add(1, lap);
        }
      }
      finish(second ? 1 : 0);
    }
    store();
  }

 private:
  static constexpr uint32_t kAll = 1;  // named barrier

  // score_ = products of all heads with this group's tile.
  __device__ __forceinline__ void score(int tile, uint32_t lap) {
    s_.full[tile].wait(lap & 1);
    const uint64_t queries = swizzled_operand(s_.q);
    const uint64_t rows = swizzled_operand(s_.rows[tile]);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      const uint64_t step = static_cast<uint64_t>(k / 4 * (kBlockBytes / 16) + k % 4 * 2);
      WgmmaBf16<kPrefillTokens>::run(score_, queries + step, rows + step, k > 0 ? 1 : 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    pin_registers(score_);
  }

  // Weights of the tile, `tokens` of it real. A reference is raised only when an exponent passes it by more than 8.
  __device__ __forceinline__ void weigh(int tile, int tokens) {
    float most[2] = {kMinusInfinity, kMinusInfinity};
    const float factor[2] = {s_.head_factor[head_], s_.head_factor[head_ + 8]};
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const bool real = 8 * (i / 4) + 2 * c_ + i % 2 < tokens;
      score_[i] = real ? score_[i] * factor[i / 2 % 2] : kMinusInfinity;
      most[i / 2 % 2] = fmaxf(most[i / 2 % 2], score_[i]);
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      most[h] = fmaxf(most[h], __shfl_xor_sync(0xFFFFFFFFU, most[h], 1));
      most[h] = fmaxf(most[h], __shfl_xor_sync(0xFFFFFFFFU, most[h], 2));
      move_reference(h, most[h] > reference_[h] + 8 ? most[h] : reference_[h]);
    }
    uint8_t* to = s_.p[tile] + head_ * 128 + 4 * c_;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      float w[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        w[i] = exp2_fast(score_[4 * j + i] - reference_[i / 2]);
        sum_[i / 2] += w[i];
      }
      const int chunk = (j ^ (head_ % 8)) * 16;
      *reinterpret_cast<uint32_t*>(to + chunk) = pack_bf16x2(w[0], w[1]);
      *reinterpret_cast<uint32_t*>(to + 8 * 128 + chunk) = pack_bf16x2(w[2], w[3]);
    }
    if (c_ == 0) {
      s_.reference[tile][head_] = reference_[0];
      s_.reference[tile][head_ + 8] = reference_[1];
    }
    fence_async_shared();
    s_.ready[tile].arrive();
  }

  // Takes over the references of the other group's tile.
  __device__ __forceinline__ void follow(int tile) {
    move_reference(0, s_.reference[tile][head_]);
    move_reference(1, s_.reference[tile][head_ + 8]);
  }
  // shrink_: what the sums of products still have to be multiplied by.
  __device__ __forceinline__ void move_reference(int h, float to) {
    if (to == reference_[h]) return;
    const float factor = exp2_fast(reference_[h] - to);
    reference_[h] = to;
    sum_[h] *= factor;
    shrink_[h] *= factor;
  }
  // No product may be under way.
  __device__ __forceinline__ void scale() {
    if (__any_sync(0xFFFFFFFFU, shrink_[0] != 1 || shrink_[1] != 1)) {
#pragma unroll
      for (int i = 0; i < 128; ++i) out_[i] *= shrink_[i / 2 % 2];
    }
    shrink_[0] = shrink_[1] = 1;
  }

  // Starts the products of a tile's weights with this group's half of the dimensions.
  __device__ __forceinline__ void add(int tile, uint32_t lap) {
    s_.full[tile].wait(lap & 1);
    const uint64_t weights = swizzled_operand(s_.p[tile]);
    const uint64_t values = columns_operand(s_.rows[tile][4 * group_], kBlockBytes);
    pin_registers(out_);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < kPrefillTokens / 16; ++k)
      WgmmaBf16<256>::run<true>(out_, weights + 2 * static_cast<uint64_t>(k), values + 128 * static_cast<uint64_t>(k), 1);
    wgmma_commit();
  }
  // Waits for them and gives the tile back.
  __device__ __forceinline__ void finish(int tile) {
    wgmma_wait<0>();
    pin_registers(out_);
    if (kArrivingLanes == 1) __syncwarp();
    if (lane_ < kArrivingLanes) s_.empty[tile].arrive();
  }

  __device__ __forceinline__ void store() {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      sum_[h] += __shfl_xor_sync(0xFFFFFFFFU, sum_[h], 1);
      sum_[h] += __shfl_xor_sync(0xFFFFFFFFU, sum_[h], 2);
      if (c_ == 0) s_.sum[group_][head_ + 8 * h] = sum_[h];
    }
    named_barrier(kAll, kConsumerThreads);  // queries and weights have been read as well: the staging lies over them
    uint8_t* to = s_.q + head_ * kOutPitch + (group_ * 256 + 2 * c_) * 2;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float inverse = 1.0F / (s_.sum[0][head_ + 8 * h] + s_.sum[1][head_ + 8 * h]);
#pragma unroll
      for (int j = 0; j < 32; ++j)
        *reinterpret_cast<uint32_t*>(to + 8 * h * kOutPitch + 16 * j) =
            pack_bf16x2(out_[4 * j + 2 * h] * inverse, out_[4 * j + 2 * h + 1] * inverse);
    }
    fence_async_shared();
    named_barrier(kAll, kConsumerThreads);
    const int head = static_cast<int>(threadIdx.x);
    if (head < min(kHeads, p_.heads - item_.head_block * kHeads)) {
      std::byte* row = p_.out + (int64_t{item_.row} * p_.out_stride + (int64_t{item_.head_block} * kHeads + head) * kDim) * 2;
      bulk_store(row, s_.q + head * kOutPitch, kDim * 2);
      bulk_commit();
      bulk_wait<0>();
    }
  }

  static constexpr float kMinusInfinity = -__builtin_huge_valf();
  const AttendParams& p_;
  PrefillShared& s_;
  const Item& item_;
  const int group_, lane_, warp_, c_;
  const int head_;  // and head_ + 8
  float out_[128];
  float score_[32];
  float sum_[2] = {0, 0};
  float reference_[2] = {kMinusInfinity, kMinusInfinity};
  float shrink_[2] = {1, 1};
};

__global__ void __launch_bounds__(kAttendThreads, 1) attend_prefill(const __grid_constant__ AttendParams p) {
  extern __shared__ __align__(1024) std::byte shared_memory[];
  auto& shared = *reinterpret_cast<PrefillShared*>(shared_memory);
  if (threadIdx.x == 0) {
    if ((shared_address(shared_memory) & 1023U) != 0) __trap();
    for (int i = 0; i < 2; ++i) {
      shared.full[i].init(64);
      shared.empty[i].init(kConsumerWarps * kArrivingLanes);
      shared.ready[i].init(128);
    }
    fence_barrier_init();
  }
  __syncthreads();
  allow_successor();
  wait_for_predecessor();
  const Item item = item_of_block(p);
  if (threadIdx.x >= kConsumerThreads) {
    give_registers<40>();
    gather_rows(p, shared, item, static_cast<int>(__shfl_sync(0xFFFFFFFFU, threadIdx.x / 32, 0)) - kConsumerWarps);
  } else {
    take_registers<232>();
    const int group = static_cast<int>(__shfl_sync(0xFFFFFFFFU, threadIdx.x / 128, 0));  // uniform
    PrefillConsumer consumer(p, shared, item, group);
    consumer.run();
  }
}

}  // namespace baton::cuda::mla
