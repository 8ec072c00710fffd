#include "cache/id_pool.h"

#include "base/check.h"

namespace baton::cache {

IdPool::IdPool(int32_t capacity) : owners_(static_cast<size_t>(capacity), Owner::kFree) {
  BATON_CHECK(capacity >= 0);
  free_.reserve(owners_.size());
  for (int32_t id = capacity - 1; id >= 0; --id) free_.push_back(id);
}

bool IdPool::take(std::span<int32_t> out) {
  if (out.size() > free_.size()) return false;
  for (int32_t& id : out) {
    id = free_.back();
    free_.pop_back();
    owners_[static_cast<size_t>(id)] = Owner::kHeld;
  }
  held_ += static_cast<int32_t>(out.size());
  return true;
}

void IdPool::change(int32_t id, Owner from, Owner to) {
  BATON_CHECK_MSG(id >= 0 && id < capacity(), "id {} of a pool of {}", id, capacity());
  Owner& owner = owners_[static_cast<size_t>(id)];
  BATON_CHECK_MSG(owner == from, "id {} has owner {}, expected {}", id, static_cast<int>(owner), static_cast<int>(from));
  owner = to;
  if (from == Owner::kHeld) --held_;
  if (to != Owner::kFree) return;
  free_.push_back(id);
  ++freed_;
}

}  // namespace baton::cache
