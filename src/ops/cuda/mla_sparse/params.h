// What the attention kernels are told; plain data for host and device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::cuda::mla {

inline constexpr int kDim = 512;         // values of a latent row
inline constexpr int kHeads = 64;        // heads of one block; fewer are padded
inline constexpr int kTileTokens = 128;  // tokens between two looks at the running maximum
inline constexpr int kSlotTokens = 16;   // tokens of one slot of the ring: the rows of one warp's product
inline constexpr int kTileSlots = kTileTokens / kSlotTokens;

struct AttendParams {
  const std::byte* q;  // bf16 [rows, q_stride]
  std::byte* out;      // bf16 [rows, out_stride]
  int64_t q_stride;    // elements
  int64_t out_stride;
  const std::byte* pages;  // first page, at the layer's rows
  int64_t page_stride;     // bytes
  const int32_t* row_sequence;
  const int32_t* positions;
  const int32_t* page_tables;
  const int32_t* pools;
  const int32_t* counts;
  const int32_t* tail_begin;
  float* partial;  // splits > 1: per item [64][512] sums, then [64] references and [64] weights
  int32_t page_table_stride;
  int32_t pool_capacity;
  int32_t pool_log2;
  int32_t rows;
  int32_t heads;
  int32_t head_blocks;
  int32_t splits;
  float scale_log2;  // softmax scale times log2(e)
};

inline constexpr int64_t kPartialFloats = int64_t{kHeads} * kDim + 2 * kHeads;

}  // namespace baton::cuda::mla
