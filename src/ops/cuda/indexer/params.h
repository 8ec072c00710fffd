// What the indexer kernels are told; plain data for host and device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::cuda::indexer {

inline constexpr int kDim = 128;
inline constexpr int kHeads = 32;
inline constexpr int kPool = 4;
inline constexpr int kPageKeys = 16;  // pooled rows of a page of 64 tokens
inline constexpr int kGroupRows = 8;  // neighbouring rows that share a pass over the keys
inline constexpr int kTileKeys = 64;

struct SelectParams {
  const std::byte* q;    // bf16 [rows, q_stride]
  const float* weights;  // [rows, weight_stride]
  int64_t q_stride;      // elements
  int64_t weight_stride;
  const std::byte* pages;  // first page, at the layer's pooled rows: 16 x 128 e4m3, then 16 float scales
  int64_t page_stride;     // bytes
  const int32_t* row_sequence;
  const int32_t* positions;
  const int32_t* page_tables;
  float* scores;  // [rows, score_stride]
  int32_t* pools;
  int32_t* counts;
  int32_t* tail_begin;
  int64_t score_stride;
  int32_t page_table_stride;
  int32_t capacity;
  int32_t rows;
  int32_t splits;
};

}  // namespace baton::cuda::indexer
