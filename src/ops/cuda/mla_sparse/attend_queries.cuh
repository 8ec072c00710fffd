// Queries into shared memory: 64 heads of one row, K-major in the 128-byte swizzle.
//
// FP8 rows multiply halves, so a head's queries are brought into their range by a power of two that the exponents give back: every bf16
// within 2^-29 of the head's largest stays exact.
#pragma once

#include <cstdint>

#include "ops/cuda/device/number.cuh"
#include "ops/cuda/device/reduce.cuh"
#include "ops/cuda/mla_sparse/attend_shared.cuh"

namespace baton::cuda::mla {

// The power of two that brings `largest` to 2^14 ... 2^15.
__device__ __forceinline__ float half_range_factor(float largest) {
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23) - 127;
  const int shift = 14 - max(-100, min(exponent, 100));
  return __uint_as_float(static_cast<uint32_t>(shift + 127) << 23);
}

// To `q`, [8 blocks of 64 dimensions][64 heads][128 B]; `head_factor` makes base-2 exponents of a head's products.
template <class Rows>
__device__ __forceinline__ void load_queries(const AttendParams& p, uint8_t* q, float* head_factor, const Item& item, int warp) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const std::byte* row = p.q + (int64_t{item.row} * p.q_stride + int64_t{item.head_block} * kHeads * kDim) * 2;
  const int heads = min(kHeads, p.heads - item.head_block * kHeads);
  constexpr int kHeadsAWarp = kHeads / kConsumerWarps;
  uint4 in[kHeadsAWarp][2];  // 16 values a lane; all loads first, they take a microsecond together
#pragma unroll
  for (int i = 0; i < kHeadsAWarp; ++i) {
    const int head = i * kConsumerWarps + warp;
    const auto* from = reinterpret_cast<const uint4*>(row + (int64_t{head} * kDim + lane * 16) * 2);
    in[i][0] = head < heads ? from[0] : make_uint4(0, 0, 0, 0);
    in[i][1] = head < heads ? from[1] : make_uint4(0, 0, 0, 0);
  }
#pragma unroll
  for (int i = 0; i < kHeadsAWarp; ++i) {
    const int head = i * kConsumerWarps + warp;
    uint32_t pair[8] = {in[i][0].x, in[i][0].y, in[i][0].z, in[i][0].w, in[i][1].x, in[i][1].y, in[i][1].z, in[i][1].w};
    float factor = 1;
    if constexpr (Rows::kScaled) {
      float largest = 0;
#pragma unroll
      for (int j = 0; j < 8; ++j) largest = fmaxf(largest, fmaxf(fabsf(bf16_low(pair[j])), fabsf(bf16_high(pair[j]))));
      factor = half_range_factor(lanes_max<1, 16>(largest));
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const __half2 h = __floats2half2_rn(bf16_low(pair[j]) * factor, bf16_high(pair[j]) * factor);
        pair[j] = *reinterpret_cast<const uint32_t*>(&h);
      }
    }
    if (lane == 0) head_factor[head] = p.scale_log2 / factor;
    // In FP8 the places 2c, 2c + 1 of 16 hold the dimensions 4c, 4c + 1 and the places 2c + 8, 2c + 9 the next two (attend_products.cuh).
    const uint4 low = Rows::kScaled ? make_uint4(pair[0], pair[2], pair[4], pair[6]) : make_uint4(pair[0], pair[1], pair[2], pair[3]);
    const uint4 high = Rows::kScaled ? make_uint4(pair[1], pair[3], pair[5], pair[7]) : make_uint4(pair[4], pair[5], pair[6], pair[7]);
    uint8_t* to = q + (lane / 4) * (kHeads * 128) + head * 128;
    const int chunk = lane % 4 * 2;
    *reinterpret_cast<uint4*>(to + ((chunk ^ (head & 7)) * 16)) = low;
    *reinterpret_cast<uint4*>(to + (((chunk + 1) ^ (head & 7)) * 16)) = high;
  }
}

}  // namespace baton::cuda::mla
