#include "router/affinity.h"

#include <algorithm>

namespace baton::router {

Affinity::Affinity(size_t entries) : entries_(std::bit_ceil(std::max(entries, kWays))) {}

const Affinity::Entry* Affinity::find(uint64_t hash) const {
  const Entry* set = entries_.data() + set_of(hash);
  for (size_t i = 0; i < kWays; ++i)
    if (set[i].instances != 0 && set[i].hash == hash) return set + i;
  return nullptr;
}

void Affinity::record(std::span<const uint64_t> blocks, int instance) {
  ++uses_;
  for (const uint64_t hash : blocks) {
    Entry* set = entries_.data() + set_of(hash);
    Entry* place = set;
    for (size_t i = 0; i < kWays; ++i) {
      if (set[i].instances != 0 && set[i].hash == hash) {
        place = set + i;
        break;
      }
      if (set[i].used < place->used) place = set + i;
    }
    if (place->instances == 0 || place->hash != hash) *place = {.hash = hash};
    place->instances |= uint64_t{1} << instance;
    place->used = uses_;
  }
}

void Affinity::match(std::span<const uint64_t> blocks, std::span<int32_t> matched) const {
  std::fill(matched.begin(), matched.end(), 0);
  uint64_t going_on = ~uint64_t{0};
  for (const uint64_t hash : blocks) {
    const Entry* entry = find(hash);
    going_on &= entry != nullptr ? entry->instances : 0;
    if (going_on == 0) return;
    for (uint64_t bits = going_on; bits != 0; bits &= bits - 1) ++matched[static_cast<size_t>(std::countr_zero(bits))];
  }
}

void Affinity::forget(int instance) {
  const uint64_t bit = uint64_t{1} << instance;
  for (Entry& e : entries_) {
    e.instances &= ~bit;
    if (e.instances == 0) e = {};
  }
}

}  // namespace baton::router
