// What the rows of one launch belong to. All arrays live where the backend reads them: host memory for the CPU, device memory for CUDA.
#pragma once

#include <cstddef>
#include <cstdint>

namespace baton::ops {

// The consecutive rows of one sequence. Rows of different sequences never influence each other.
struct SequenceRows {
  int32_t row_begin;  // first row of this launch
  int32_t row_count;  // >= 0; 0 leaves the sequence untouched
  int32_t position;   // position in its sequence of the first row, 0-based
  int32_t slot;       // slot of the pool; -1 where no slot is touched
  int32_t verify;     // 0: the rows are final and advance the state; 1: they may be rejected and only feed the replay ring
};

struct BatchView {
  const SequenceRows* sequences = nullptr;  // [sequence_count]
  int32_t sequence_count = 0;
  int32_t row_count = 0;                  // rows of all sequences; sequences are laid out in order without gaps
  const int32_t* row_sequence = nullptr;  // [row_count] index into `sequences`
  const int32_t* positions = nullptr;     // [row_count]
  const int32_t* page_tables = nullptr;   // [sequence_count, page_table_stride] page ids; page i holds positions 64 i ... 64 i + 63
  int32_t page_table_stride = 0;
};

inline constexpr int32_t kPageTokens = 64;

// Pages and slots are byte ranges; a layer finds its part at fixed offsets that `model::CacheLayout` computes.
struct PagePoolView {
  std::byte* base = nullptr;
  int64_t stride = 0;  // bytes between pages, a multiple of 256
  std::byte* page(int32_t id) const { return base + int64_t{id} * stride; }
};

struct SlotPoolView {
  std::byte* base = nullptr;
  int64_t stride = 0;  // bytes between slots, a multiple of 256
  std::byte* slot(int32_t id) const { return base + int64_t{id} * stride; }
};

}  // namespace baton::ops
