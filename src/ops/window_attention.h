// Attention of a drafter's blocks. A block is a few rows of one sequence that a drafter guesses at once: they see a window of committed
// tokens before them and, in both directions, each other.
//
// Keys and values of committed tokens come from features of the target, not from the drafter's own layers, so they are final once written:
// a ring of `window` of them per layer lies in the slot.
#pragma once

#include "ops/batch.h"
#include "tensor/view.h"

namespace baton::ops {

// Rotary positions over halves: (a, b) -> (a cos - b sin, b cos + a sin) with a, b the halves of a head's vector, at angles
// position * theta^(-i / (dim / 2)) for i < dim / 2.
struct Rotary {
  float theta = 0;
};

struct WindowLayout {
  int64_t kv_heads = 0;
  int64_t dim = 0;            // of a head, even
  int64_t slot_offset = 0;    // in a slot: [window, 2, kv_heads * dim] of dtype: key and value of position t at entry t mod window
  int32_t window = 0;         // tokens
  DType dtype = DType::kF32;  // kF32 or kBF16

  int64_t entry_bytes() const { return 2 * kv_heads * dim * dtype_bytes(dtype); }
  int64_t bytes() const { return window * entry_bytes(); }
};

// Writes the rows of each sequence into its ring: key = rotary(RMSNorm(key)), value as it is. Of more rows than the window holds only the
// last ones are kept.
struct WindowWriteParams {
  BatchView batch{};                // page tables are not read
  const int32_t* counts = nullptr;  // [sequence_count] how many of a sequence's rows are committed, its first ones; null: all
  ConstMatrixView key{};            // [m, kv_heads * dim]
  ConstMatrixView value{};          // [m, kv_heads * dim]
  const float* norm = nullptr;      // [dim]
  float eps = 0;
  Rotary rotary{};
  SlotPoolView slots{};
  WindowLayout layout{};
};

// Every sequence brings `block` rows at its position L, L + 1, ... Each sees the tokens max(0, L - window) ... L - 1 of the ring, which
// must have been written, and all rows of its block:
//   q = rotary(RMSNorm(q; q_norm)), k = rotary(RMSNorm(k; k_norm)) of the block;  out_h = softmax(dim^-1/2 q_h . k) v, in float
// Query head h uses key head h / (heads / kv_heads). Tokens are visited in ascending order.
struct WindowAttendParams {
  BatchView batch{};
  int64_t block = 0;
  ConstMatrixView q{};      // [m, heads * dim]
  ConstMatrixView key{};    // [m, kv_heads * dim] of the block itself
  ConstMatrixView value{};  // [m, kv_heads * dim]
  int64_t heads = 0;
  const float* q_norm = nullptr;  // [dim]
  const float* k_norm = nullptr;  // [dim]
  float eps = 0;
  Rotary rotary{};
  SlotPoolView slots{};
  WindowLayout layout{};
  MatrixView out{};  // [m, heads * dim]
};

}  // namespace baton::ops
