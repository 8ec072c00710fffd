// Four warps bring cache rows into the ring, each every fourth slot: whole pools, one bulk copy each (BF16 rows: one copy a row, for the
// pitch). One warp alone is too slow: the copies of a slot start one after the other, at some 60 cycles each.
#pragma once

#include <cstdint>

#include "ops/batch.h"
#include "ops/cuda/device/bulk_copy.cuh"
#include "ops/cuda/mla_sparse/attend_shared.cuh"

namespace baton::cuda::mla {

template <class Rows>
__device__ __forceinline__ void produce(const AttendParams& p, AttendShared<Rows>& s, const Item& item, int warp) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int run_log2 = p.pool_log2 < 4 ? p.pool_log2 : 4;  // tokens of a copy: a pool or a part of it, all in one page
  const int runs_log2 = 4 - run_log2;                      // copies a slot
  const int batch_slots = 32 >> runs_log2;                 // a lane looks up one copy of a batch of slots, one batch ahead
  const int slots = (item.count + kSlotTokens - 1) / kSlotTokens;
  const int pooled = p.counts[item.row] << p.pool_log2;
  const int tail_begin = p.tail_begin[item.row];
  const int32_t* pools = p.pools + int64_t{item.row} * p.pool_capacity;
  const int32_t* pages = p.page_tables + int64_t{p.row_sequence[item.row]} * p.page_table_stride;
  const int lane_slot = lane >> runs_log2;
  const int first = (lane & ((1 << runs_log2) - 1)) << run_log2;  // in its slot

  const auto source = [&](int batch) -> const std::byte* {
    const int at = ((batch * batch_slots + lane_slot) * kProducerWarps + warp) * kSlotTokens + first;
    if (at >= item.count) return nullptr;
    const int token = item.first + at;
    const int position =
        token < pooled ? (pools[token >> p.pool_log2] << p.pool_log2) + (token & ((1 << p.pool_log2) - 1)) : tail_begin + token - pooled;
    const auto page = static_cast<uint32_t>(position) / ops::kPageTokens;
    return p.pages + int64_t{pages[page]} * p.page_stride + static_cast<uint32_t>(position) % ops::kPageTokens * Rows::kRowBytes;
  };

  const std::byte* next = source(0);
  int number = warp;
  for (int batch = 0; number < slots; ++batch) {
    const std::byte* current = next;
    next = source(batch + 1);
    for (int i = 0; i < batch_slots && number < slots; ++i, number += kProducerWarps) {
      const int slot = number % Rows::kSlots;
      uint8_t* to = s.ring[slot];
      Barrier& full = s.full[slot];
      s.empty[slot].wait((number / Rows::kSlots & 1) ^ 1);
      const int tokens = min(kSlotTokens, item.count - number * kSlotTokens);
      if (tokens < kSlotTokens) {  // what is missing in the last slot meets weights of zero: it must be a number
        for (int b = tokens * Rows::kPitch + lane * 16; b < kSlotTokens * Rows::kPitch; b += 32 * 16)
          *reinterpret_cast<uint4*>(to + b) = make_uint4(0, 0, 0, 0);
        __syncwarp();
      }
      if (lane == 0)
        full.expect(static_cast<uint32_t>(tokens * Rows::kRowBytes));
      else if (lane < kArrivingLanes)
        full.arrive();
      __syncwarp();
      const int length = lane_slot == i ? min(1 << run_log2, tokens - first) : 0;
      if constexpr (Rows::kPitch == Rows::kRowBytes) {
        if (length > 0) bulk_load(to + first * Rows::kPitch, current, static_cast<uint32_t>(length * Rows::kRowBytes), full);
      } else {
        for (int r = 0; r < length; ++r) bulk_load(to + (first + r) * Rows::kPitch, current + r * Rows::kRowBytes, Rows::kRowBytes, full);
      }
    }
  }
}

}  // namespace baton::cuda::mla
