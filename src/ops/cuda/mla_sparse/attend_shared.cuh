// Memory map of the attention kernel, and how the two kinds of cache rows differ.
//
//   q[8][64 heads][128 B]      queries, K-major in the 128-byte swizzle, 64 values of k a block; with `p` the staging of the output
//   p[128 tokens][128 B]       weights of a tile, one row of 64 heads a token, swizzled
//   ring[slots][16 rows]       cache rows as they are, at a pitch that is an odd multiple of 16 bytes: ldmatrix reads without conflicts
//   relative[4][128]           FP8: scale of each 128 values relative to the row's largest
//   the rest                   per head or per warp
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "ops/cuda/device/barrier.cuh"
#include "ops/cuda/mla_sparse/params.h"

namespace baton::cuda::mla {

inline constexpr int kConsumerWarps = 8;
inline constexpr int kConsumerThreads = 256;
inline constexpr int kProducerWarps = 4;
inline constexpr int kAttendThreads = 384;  // two consumer warpgroups, one producer warpgroup

// The race checker follows a barrier from each thread that arrives to each that waits, and no further. So that it sees all there is, every
// thread hands over what it wrote or read and waits for what it reads itself; one a warp is enough otherwise.
#ifdef BATON_RACECHECK
inline constexpr int kArrivingLanes = 32;
#else
inline constexpr int kArrivingLanes = 1;
#endif

struct E4m3Rows {
  using Element = __half;  // of the products: e4m3 fits exactly
  static constexpr bool kScaled = true;
  static constexpr int kRowBytes = 528;
  static constexpr int kPitch = 528;
  static constexpr int kSlots = 16;
};

struct Bf16Rows {
  using Element = __nv_bfloat16;
  static constexpr bool kScaled = false;
  static constexpr int kRowBytes = 1024;
  static constexpr int kPitch = 1040;
  static constexpr int kSlots = 8;
};

template <class Rows>
struct AttendShared {
  uint8_t q[kHeads * kDim * 2];
  uint8_t p[kTileTokens * kHeads * 2];
  uint8_t ring[Rows::kSlots][kSlotTokens * Rows::kPitch];
  __half relative[4][kTileTokens];
  float head_factor[kHeads];    // a product becomes a base-2 exponent
  float reference[2][kHeads];   // what exponents are taken relative to; the pair is used in turn
  uint32_t column_max[kHeads];  // ordered bits
  float warp_sum[kConsumerWarps][kHeads];
  float inverse_sum[kHeads];
  Barrier full[Rows::kSlots];
  Barrier empty[Rows::kSlots];
};

inline constexpr int kOutPitch = kDim * 2 + 16;  // bytes of a head's output in the staging area
static_assert(kHeads * kOutPitch <= kHeads * kDim * 2 + kTileTokens * kHeads * 2);

// The tokens that one block works on: [first, first + count) of the row's list, pools in order and then the tail.
struct Item {
  int32_t row;
  int32_t head_block;
  int32_t split;
  int32_t first;
  int32_t count;
};

__device__ __forceinline__ Item item_of_block(const AttendParams& p) {
  Item item;
  const int index = static_cast<int>(blockIdx.x);
  item.split = index % p.splits;
  item.head_block = index / p.splits % p.head_blocks;
  item.row = index / p.splits / p.head_blocks;
  const int tokens = (p.counts[item.row] << p.pool_log2) + p.positions[item.row] + 1 - p.tail_begin[item.row];
  const int tiles = (tokens + kTileTokens - 1) / kTileTokens;
  const int begin = tiles * item.split / p.splits * kTileTokens;
  const int end = tiles * (item.split + 1) / p.splits * kTileTokens;
  item.first = begin;
  item.count = (end < tokens ? end : tokens) - begin;
  return item;
}

}  // namespace baton::cuda::mla
