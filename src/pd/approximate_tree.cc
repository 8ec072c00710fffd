#include "pd/approximate_tree.h"

#include <xxhash.h>

#include "cache/prefix_tree.h"

namespace baton::pd {

std::vector<PageKey> page_keys(uint64_t salt, std::span<const int32_t> tokens) {
  const size_t pages = tokens.size() / static_cast<size_t>(cache::kPageUnits);
  std::vector<PageKey> keys(pages);
  uint64_t key = salt;
  for (size_t i = 0; i < pages; ++i)
    keys[i] = key = XXH3_64bits_withSeed(&tokens[i * cache::kPageUnits], static_cast<size_t>(cache::kPageUnits) * sizeof(int32_t), key);
  return keys;
}

ApproximateTree::ApproximateTree(int32_t capacity_pages) : keys_(static_cast<size_t>(capacity_pages)), uses_(capacity_pages) { clear(); }

int32_t ApproximateTree::match(std::span<const PageKey> keys) const {
  size_t found = 0;
  while (found < keys.size() && places_.contains(keys[found])) ++found;
  return static_cast<int32_t>(found);
}

// From the last page to the first, so that of a path its end is forgotten first.
void ApproximateTree::remember(std::span<const PageKey> keys) {
  for (size_t i = keys.size(); i-- > 0;) {
    if (const auto known = places_.find(keys[i]); known != places_.end()) {
      uses_.put_newest(known->second);
      continue;
    }
    if (free_.empty()) {
      const int32_t oldest = uses_.oldest();
      if (oldest == cache::UseList::kNone) return;  // no room at all
      drop(oldest);
    }
    const int32_t place = free_.back();
    free_.pop_back();
    keys_[static_cast<size_t>(place)] = keys[i];
    places_.emplace(keys[i], place);
    uses_.put_newest(place);
  }
}

void ApproximateTree::forget(std::span<const PageKey> keys) {
  for (const PageKey key : keys)
    if (const auto known = places_.find(key); known != places_.end()) drop(known->second);
}

void ApproximateTree::correct(int32_t missing) {
  corrections_ += missing > 0 ? 1 : 0;
  for (; missing > 0 && uses_.oldest() != cache::UseList::kNone; --missing) drop(uses_.oldest());
}

void ApproximateTree::drop(int32_t place) {
  uses_.remove(place);
  places_.erase(keys_[static_cast<size_t>(place)]);
  free_.push_back(place);
}

void ApproximateTree::clear() {
  places_.clear();
  free_.clear();
  for (int32_t i = static_cast<int32_t>(keys_.size()); i-- > 0;) {
    uses_.remove(i);
    free_.push_back(i);
  }
}

}  // namespace baton::pd
