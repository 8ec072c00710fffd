#include "sim/timed_device.h"

#include <algorithm>

namespace baton::sim {

TimedDevice::TimedDevice(int32_t slots, int32_t vocabulary, double yield, uint64_t seed)
    : slots_(static_cast<size_t>(slots)), vocabulary_(static_cast<uint32_t>(vocabulary)), yield_(yield), random_(seed, 8) {}

// The whole part of the yield, and one more as often as its fraction says; no more than rows that there are.
int32_t TimedDevice::yield_of(const sched::Rows& rows, Slot& slot) {
  const auto whole = static_cast<int32_t>(yield_);
  int32_t count = std::min(whole + (random_.chance(yield_ - whole) ? 1 : 0), rows.count);
  count = std::min(count, slot.limit - slot.position);
  if (rows.edge > slot.position) count = std::min(count, rows.edge - slot.position);
  slot.position += count;
  return count;
}

sched::Drawn TimedDevice::run(const sched::Cycle& cycle) {
  tokens_.clear();
  ends_.clear();
  drafted_.clear();
  for (const sched::Bind& b : cycle.binds) slots_[static_cast<size_t>(b.slot)] = {.position = b.prompt, .limit = b.rows_limit};
  for (const sched::Rows& r : cycle.rows)
    if (r.ids_begin != sched::kDrawnToken) slots_[static_cast<size_t>(r.slot)].position = r.position + r.count;
  for (const sched::Draw& d : cycle.draws) {
    const sched::Rows* rows = d.rows == sched::kSlotRow ? nullptr : &cycle.rows[static_cast<size_t>(d.rows)];
    const bool decodes = rows != nullptr && rows->ids_begin == sched::kDrawnToken;
    const int32_t count = decodes ? yield_of(*rows, slots_[static_cast<size_t>(d.slot)]) : 1;
    // Different ones, so that no two answers become the same cache.
    for (int32_t i = 0; i < count; ++i) tokens_.push_back(static_cast<int32_t>(drawn_++ % vocabulary_));
    ends_.push_back(static_cast<int32_t>(tokens_.size()));
    drafted_.push_back(decodes ? rows->count - 1 : 0);
  }
  return {tokens_, ends_, drafted_};
}

}  // namespace baton::sim
