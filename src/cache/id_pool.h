// A fixed set of equal objects known by number: pages, slots, snapshots. Every id has exactly one owner at any time.
//
// Threads: none of its own; one thread uses it. Nothing is allocated after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace baton::cache {

enum class Owner : uint8_t {
  kFree,
  kHeld,   // by a request, which alone may write it
  kCached  // by the tree: read-only, shared
};

class IdPool {
 public:
  explicit IdPool(int32_t capacity);

  int32_t capacity() const { return static_cast<int32_t>(owners_.size()); }
  int32_t free_count() const { return static_cast<int32_t>(free_.size()); }
  int32_t held_count() const { return held_; }
  int32_t cached_count() const { return capacity() - free_count() - held_; }
  int64_t freed() const { return freed_; }  // how often an id became free, in all
  Owner owner(int32_t id) const { return owners_[static_cast<size_t>(id)]; }

  // Free ids become held: all of `out`, or none (false).
  bool take(std::span<int32_t> out);
  // Held becomes free, held becomes cached, cached becomes free. Another owner than expected is a defect and stops the process.
  void release(int32_t id) { change(id, Owner::kHeld, Owner::kFree); }
  void adopt(int32_t id) { change(id, Owner::kHeld, Owner::kCached); }
  void discard(int32_t id) { change(id, Owner::kCached, Owner::kFree); }

 private:
  void change(int32_t id, Owner from, Owner to);

  std::vector<Owner> owners_;
  std::vector<int32_t> free_;  // a stack: what was used last is warm
  int32_t held_ = 0;
  int64_t freed_ = 0;
};

}  // namespace baton::cache
