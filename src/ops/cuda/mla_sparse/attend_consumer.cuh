// Two warpgroups work through the tiles of one item. Scores are transposed, S^T = C Q^T, so that cache rows are the register operand:
// a warpgroup scores its 64 tokens of a tile for all heads, the weights pass through shared memory, and each warpgroup adds up its 256
// dimensions of O^T = C^T P^T over the whole tile.
#pragma once

#include <cstdint>

#include "ops/cuda/device/bulk_copy.cuh"
#include "ops/cuda/device/matrix.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/mla_sparse/attend_products.cuh"
#include "ops/cuda/mla_sparse/attend_queries.cuh"
#include "ops/cuda/mla_sparse/attend_shared.cuh"

namespace baton::cuda::mla {

inline constexpr float kMinusInfinity = -__builtin_huge_valf();
// A weight may exceed the reference by this much (base 2) before everything is rescaled: halves end at 2^16.
inline constexpr float kHeadroom = 8;

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// True in all threads if it is in any.
__device__ __forceinline__ bool any_of(uint32_t barrier, uint32_t threads, bool mine) {
  uint32_t any;
  asm volatile(
      "{\n .reg .pred p, q;\n setp.ne.u32 p, %3, 0;\n"
      " barrier.cta.red.or.pred q, %1, %2, p;\n"
      " selp.u32 %0, 1, 0, q;\n}"
      : "=r"(any)
      : "r"(barrier), "r"(threads), "r"(static_cast<uint32_t>(mine))
      : "memory");
  return any != 0;
}
// Floats as unsigned numbers in the same order; 0 is below all of them.
__device__ __forceinline__ uint32_t ordered_bits(float x) {
  const uint32_t u = __float_as_uint(x);
  return (u >> 31) != 0 ? ~u : u | 0x80000000U;
}
__device__ __forceinline__ float from_ordered_bits(uint32_t u) { return __uint_as_float((u >> 31) != 0 ? u & 0x7FFFFFFFU : ~u); }

template <class Rows>
class Consumer {
 public:
  __device__ __forceinline__ Consumer(const AttendParams& p, AttendShared<Rows>& s, const Item& item, int group)
      : p_(p), s_(s), item_(item), group_(group), warp_(static_cast<int>(threadIdx.x) / 32 % 4), lane_(static_cast<int>(threadIdx.x) & 31),
        g_(lane_ / 4), c_(lane_ % 4), fragments_(static_cast<uint32_t>(p.splits) >> 31) {}

  __device__ __forceinline__ void run() {
    load_queries<Rows>(p_, s_.q, s_.head_factor, item_, group_ * 4 + warp_);
    if (threadIdx.x < kHeads) {
      s_.reference[0][threadIdx.x] = kMinusInfinity;
      s_.column_max[threadIdx.x] = 0;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 32; ++j) out_[i][j] = 0;
#pragma unroll
    for (int j = 0; j < 16; ++j) sum_[j] = 0;
    fence_async_shared();
    named_barrier(kAll, kConsumerThreads);
    const int tiles = (item_.count + kTileTokens - 1) / kTileTokens;
    for (int tile = 0; tile < tiles; ++tile) {
      const int tokens = min(kTileTokens, item_.count - tile * kTileTokens);
      score(tile, tokens);
      weigh(tokens);
      add_values(tile, tokens);
    }
    store();
  }

 private:
  static constexpr uint32_t kAll = 1;  // named barriers
  static constexpr uint32_t kDecide = 2;
  using Product = WgmmaRegisters<typename Rows::Element>;

  __device__ __forceinline__ int column(int j) const { return 8 * (j >> 1) + 2 * c_ + (j & 1); }  // head of sum_[j]
  __device__ __forceinline__ uint32_t slot_address(int number) const { return shared_address(s_.ring[number % Rows::kSlots]); }

  // score_ = products of this warp's 16 tokens with all heads, and the scales of the thread's two tokens. Behind the end of the tokens the
  // products are of whatever stands there, and are replaced later: a branch around them would make the compiler serialise all products.
  __device__ __forceinline__ void score(int tile, int tokens) {
    const int part = group_ * 4 + warp_;
    const int number = tile * kTileSlots + part;
    if (part * kSlotTokens < tokens) s_.full[number % Rows::kSlots].wait(number / Rows::kSlots & 1);
    const uint32_t slot = slot_address(number);
    if constexpr (Rows::kScaled) {
      const uint8_t* row = s_.ring[number % Rows::kSlots] + g_ * Rows::kPitch + kDim;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float4 scale = *reinterpret_cast<const float4*>(row + i * 8 * Rows::kPitch);
        largest_[i] = fmaxf(fmaxf(fmaxf(scale.x, scale.y), fmaxf(scale.z, scale.w)), 0x1p-60F);
        const float inverse = 1.0F / largest_[i];
        const __half2 low = __floats2half2_rn(scale.x * inverse, scale.y * inverse);
        const __half2 high = __floats2half2_rn(scale.z * inverse, scale.w * inverse);
        relative_[i][0] = *reinterpret_cast<const uint32_t*>(&low);
        relative_[i][1] = *reinterpret_cast<const uint32_t*>(&high);
      }
    }
    const uint64_t queries = swizzled_operand(s_.q);
    fragments_.load_keys(slot, 0);
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      wgmma_wait<1>();
      pin_fragments(a_[i & 1]);
      uint32_t factor[2] = {0, 0};
      if constexpr (Rows::kScaled) {
        factor[0] = __byte_perm(relative_[0][i / 8], 0, i / 4 % 2 == 0 ? 0x1010 : 0x3232);
        factor[1] = __byte_perm(relative_[1][i / 8], 0, i / 4 % 2 == 0 ? 0x1010 : 0x3232);
      }
      fragments_.keys(a_[i & 1], factor);
      if (i + 1 < 16) fragments_.load_keys(slot, i + 1);
      wgmma_fence();
      const uint64_t operand = queries + static_cast<uint64_t>(i / 2 * (kHeads * 128 / 16) + i % 2 * 4);
      Product::template run<false>(score_, a_[i & 1], operand, i > 0 ? 1 : 0);
      Product::template run<false>(score_, a_[i & 1] + 4, operand + 2, 1);
      wgmma_commit();
    }
    wgmma_wait<0>();
    pin_registers(score_);
  }

  // score_ becomes base-2 exponents, then weights in shared memory. A weight carries its row's scale, because the values that it meets
  // are relative to that; the sum of weights takes it out again.
  __device__ __forceinline__ void weigh(int tokens) {
    bool grows = false;
    float scale[2] = {1, 1};
    float log_scale[2] = {0, 0};
    float inverse[2] = {1, 1};
    float reference[16];
    const int token = (group_ * 4 + warp_) * kSlotTokens + g_;
    if constexpr (Rows::kScaled) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        scale[i] = largest_[i];
        log_scale[i] = __log2f(largest_[i]);
        inverse[i] = token + 8 * i < tokens ? 1.0F / largest_[i] : 0.0F;
      }
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 m = *reinterpret_cast<const float2*>(&s_.reference[current_][8 * j + 2 * c_]);
      reference[2 * j] = m.x;
      reference[2 * j + 1] = m.y;
    }
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float2 factor = *reinterpret_cast<const float2*>(&s_.head_factor[8 * j + 2 * c_]);
      score_[4 * j] = fmaf(score_[4 * j] * factor.x, scale[0], log_scale[0]);
      score_[4 * j + 1] = fmaf(score_[4 * j + 1] * factor.y, scale[0], log_scale[0]);
      score_[4 * j + 2] = fmaf(score_[4 * j + 2] * factor.x, scale[1], log_scale[1]);
      score_[4 * j + 3] = fmaf(score_[4 * j + 3] * factor.y, scale[1], log_scale[1]);
    }
    if (tokens < kTileTokens) {  // what lies behind the end weighs nothing, whatever stands there
#pragma unroll
      for (int j = 0; j < 32; ++j)
        if (token + (j & 2) * 4 >= tokens) score_[j] = kMinusInfinity;
    }
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float top = fmaxf(score_[(j >> 1) * 4 + (j & 1)], score_[(j >> 1) * 4 + (j & 1) + 2]);
      grows = grows || top > reference[j] + kHeadroom;
    }
    // Behind this barrier nobody reads the weights and scales of the tile before any more.
    const bool grew = any_of(kDecide, kConsumerThreads, grows);
    if (grew) raise_reference(reference);
    if constexpr (Rows::kScaled) {
      if (c_ == 0) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int group = 0; group < 4; ++group)
            s_.relative[group][token + 8 * i] = __ushort_as_half(static_cast<uint16_t>(relative_[i][group >> 1] >> (16 * (group & 1))));
      }
    }
    const uint32_t key = static_cast<uint32_t>((group_ * 4 + warp_) * kSlotTokens + (lane_ & 15));
    const uint32_t row = shared_address(s_.p) + key * 128;
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      uint32_t packed[4];
#pragma unroll
      for (int t = 0; t < 4; ++t) {  // heads of j or j + 1, token g or g + 8
        const int at = (j + (t >> 1)) * 4 + (t & 1) * 2;
        const int k = (j + (t >> 1)) * 2;
        const float x = exp2_fast(score_[at] - reference[k]);
        const float y = exp2_fast(score_[at + 1] - reference[k + 1]);
        sum_[k] = fmaf(x, inverse[t & 1], sum_[k]);
        sum_[k + 1] = fmaf(y, inverse[t & 1], sum_[k + 1]);
        packed[t] = pack(x, y);
      }
      const uint32_t chunk = static_cast<uint32_t>(j + (lane_ >> 4));
      store_matrix_x4(row + ((chunk ^ (key & 7)) << 4), packed[0], packed[1], packed[2], packed[3]);
    }
    fence_async_shared();
    named_barrier(kAll, kConsumerThreads);
    if (grew && threadIdx.x < kHeads) s_.column_max[threadIdx.x] = 0;
  }

  // The largest exponent of each head so far becomes what weights are relative to; sums follow.
  __device__ __forceinline__ void raise_reference(float (&reference)[16]) {
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float top = fmaxf(score_[(j >> 1) * 4 + (j & 1)], score_[(j >> 1) * 4 + (j & 1) + 2]);
      const float most = lanes_max<4, 16>(top);
      if (g_ == 0) atomicMax(&s_.column_max[column(j)], ordered_bits(most));
    }
    named_barrier(kAll, kConsumerThreads);
    current_ ^= 1;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float most = fmaxf(reference[j], from_ordered_bits(s_.column_max[column(j)]));
      const float shrink = reference[j] == kMinusInfinity ? 0.0F : exp2_fast(reference[j] - most);
      reference[j] = most;
      sum_[j] *= shrink;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        out_[i][(j >> 1) * 4 + (j & 1)] *= shrink;
        out_[i][(j >> 1) * 4 + (j & 1) + 2] *= shrink;
      }
      if (group_ == 0 && warp_ == 0 && g_ == 0) s_.reference[current_][column(j)] = most;
    }
  }

  __device__ __forceinline__ static uint32_t pack(float x, float y) {
    if constexpr (Rows::kScaled) {
      const __half2 h = __floats2half2_rn(x, y);
      return *reinterpret_cast<const uint32_t*>(&h);
    } else {
      return pack_bf16x2(x, y);
    }
  }

  __device__ __forceinline__ void add_values(int tile, int tokens) {
    const int steps = (tokens + kSlotTokens - 1) / kSlotTokens;
    const int dim = group_ * 256 + warp_ * 16;
    const uint64_t weights = swizzled_operand(s_.p);
    if (kArrivingLanes > 1) s_.full[tile * kTileSlots % Rows::kSlots].wait(tile * kTileSlots / Rows::kSlots & 1);
    fragments_.load_values(slot_address(tile * kTileSlots), dim);
#pragma unroll 2
    for (int k = 0; k < steps; ++k) {
      const int number = tile * kTileSlots + k;
      if (kArrivingLanes > 1 && k + 1 < steps) s_.full[(number + 1) % Rows::kSlots].wait((number + 1) / Rows::kSlots & 1);
      uint32_t factor[2][2] = {{0, 0}, {0, 0}};
      if constexpr (Rows::kScaled) {
#pragma unroll
        for (int i = 0; i < 2; ++i)
#pragma unroll
          for (int t = 0; t < 2; ++t)
            factor[i][t] = *reinterpret_cast<const uint32_t*>(&s_.relative[group_ * 2 + i][k * kSlotTokens + 2 * c_ + 8 * t]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        wgmma_wait<1>();
        pin_fragments(a_[i]);
        fragments_.values(a_[i], factor[i]);
        if (i == 0) {
          fragments_.load_values(slot_address(number), dim + 128);
        } else if (k + 1 < steps) {
          fragments_.load_values(slot_address(number + 1), dim);
        }
        wgmma_fence();
        const uint64_t operand = weights + static_cast<uint64_t>(k * (kSlotTokens * 128 / 16));
        Product::template run<true>(out_[2 * i], a_[i], operand, 1);
        Product::template run<true>(out_[2 * i + 1], a_[i] + 4, operand, 1);
        wgmma_commit();
      }
      __syncwarp();
      if (lane_ < kArrivingLanes) s_.empty[number % Rows::kSlots].arrive();
    }
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < 4; ++i) pin_registers(out_[i]);
  }

  __device__ __forceinline__ void store() {
    // Sum of the weights of each head: lanes, then warps, always in the same order.
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      float sum = sum_[j];
#pragma unroll
      for (int bit = 4; bit <= 16; bit *= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, bit);
      if (g_ == 0) s_.warp_sum[group_ * 4 + warp_][column(j)] = sum;
    }
    named_barrier(kAll, kConsumerThreads);
    if (threadIdx.x < kHeads) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kConsumerWarps; ++w) sum += s_.warp_sum[w][threadIdx.x];
      s_.inverse_sum[threadIdx.x] = p_.splits > 1 ? sum : 1.0F / sum;
    }
    named_barrier(kAll, kConsumerThreads);
    if (p_.splits > 1) {
      store_partial();
    } else {
      store_output();
    }
  }

  // Dimension of out_[i][4 j + e]: rows g and g + 8 of a product, see attend_products.cuh.
  __device__ __forceinline__ int dimension(int i, int half) const {
    return group_ * 256 + i * 64 + warp_ * 16 + (Rows::kScaled ? 2 * g_ + half : g_ + 8 * half);
  }

  __device__ __forceinline__ void store_partial() {
    float* to = p_.partial + int64_t{blockIdx.x} * kPartialFloats;
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 32; ++j) to[(8 * (j >> 2) + 2 * c_ + (j & 1)) * kDim + dimension(i, (j >> 1) & 1)] = out_[i][j];
    if (threadIdx.x < kHeads) {
      to[kHeads * kDim + threadIdx.x] = s_.reference[current_][threadIdx.x];
      to[kHeads * kDim + kHeads + threadIdx.x] = s_.inverse_sum[threadIdx.x];
    }
  }

  __device__ __forceinline__ void store_output() {
    uint8_t* staging = s_.q;  // queries and weights are done with
    float norm[16];
#pragma unroll
    for (int j = 0; j < 16; ++j) norm[j] = s_.inverse_sum[column(j)];
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 16; ++j) {
        const float x = out_[i][(j >> 1) * 4 + (j & 1)] * norm[j];
        const float y = out_[i][(j >> 1) * 4 + (j & 1) + 2] * norm[j];
        uint8_t* to = staging + column(j) * kOutPitch;
        if constexpr (Rows::kScaled) {
          *reinterpret_cast<uint32_t*>(to + dimension(i, 0) * 2) = pack_bf16x2(x, y);
        } else {
          *reinterpret_cast<__nv_bfloat16*>(to + dimension(i, 0) * 2) = __float2bfloat16_rn(x);
          *reinterpret_cast<__nv_bfloat16*>(to + dimension(i, 1) * 2) = __float2bfloat16_rn(y);
        }
      }
    fence_async_shared();
    named_barrier(kAll, kConsumerThreads);
    const int heads = min(kHeads, p_.heads - item_.head_block * kHeads);
    if (threadIdx.x < static_cast<unsigned>(heads)) {
      std::byte* to = p_.out + (int64_t{item_.row} * p_.out_stride + (int64_t{item_.head_block} * kHeads + threadIdx.x) * kDim) * 2;
      bulk_store(to, staging + threadIdx.x * kOutPitch, kDim * 2);
      bulk_commit();
      bulk_wait<0>();
    }
  }

  const AttendParams& p_;
  AttendShared<Rows>& s_;
  const Item& item_;
  const int group_, warp_, lane_, g_, c_;
  int current_ = 0;
  Fragments<Rows> fragments_;
  uint32_t a_[2][8];
  uint32_t relative_[2][2];
  float largest_[2];
  float score_[32];
  float out_[4][32];  // four blocks of 64 dimensions by 64 heads
  float sum_[16];
};

}  // namespace baton::cuda::mla
