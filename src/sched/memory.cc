#include "sched/memory.h"

#include <algorithm>

#include "base/check.h"

namespace baton::sched {

Memory::Memory(const MemorySizes& sizes)
    : pages(sizes.pages), slots(sizes.slots), host_pages(sizes.host_pages), host_slots(sizes.host_slots), tree(pages),
      snapshots(sizes.snapshots, sizes.pages) {
  // Everything may retire at once; leases are at most one a slot.
  retired_.reserve(static_cast<size_t>(sizes.pages) + static_cast<size_t>(sizes.host_pages) +
                   4 * static_cast<size_t>(sizes.slots + sizes.host_slots));
}

bool Memory::take_pages(std::span<int32_t> out) {
  const auto count = static_cast<int32_t>(out.size());
  const int32_t missing = count - pages.free_count();
  if (missing > tree.evictable_count()) return false;
  if (missing > 0) {
    const int32_t freed = tree.evict(missing, [this](cache::Node node) { snapshots.drop(node); });
    BATON_CHECK(freed == missing);
    evicted_ += freed;
  }
  return pages.take(out);
}

void Memory::retire(Kind kind, int32_t id, int64_t cycle) {
  const Retired r{kind, id, cycle};
  if (cycle <= completed_) return give_back(r);
  retiring_pages_ += kind == Kind::kPage ? 1 : 0;
  retiring_leases_ += kind == Kind::kLease ? 1 : 0;
  retired_.push_back(r);
}

void Memory::complete(int64_t cycle) {
  BATON_CHECK(cycle > completed_);
  completed_ = cycle;
  const auto kept = std::partition(retired_.begin(), retired_.end(), [cycle](const Retired& r) { return r.cycle > cycle; });
  for (auto r = kept; r != retired_.end(); ++r) {
    retiring_pages_ -= r->kind == Kind::kPage ? 1 : 0;
    retiring_leases_ -= r->kind == Kind::kLease ? 1 : 0;
    give_back(*r);
  }
  retired_.erase(kept, retired_.end());
}

void Memory::give_back(const Retired& r) {
  ++returns_;
  switch (r.kind) {
    case Kind::kPage: return pages.release(r.id);
    case Kind::kSlot: return slots.release(r.id);
    case Kind::kHostPage: return host_pages.release(r.id);
    case Kind::kHostSlot: return host_slots.release(r.id);
    case Kind::kLease: return tree.unlock(r.id);
    case Kind::kSnapshotLease: return snapshots.unlock(r.id);
  }
}

int32_t Memory::flush() {
  const int32_t freed = tree.evict(tree.evictable_count(), [this](cache::Node node) { snapshots.drop(node); });
  evicted_ += freed;
  ++returns_;
  return freed;
}

void Memory::check_invariants() const {
  tree.check_invariants();
  snapshots.check_invariants();
  int32_t retiring = 0;
  for (const Retired& r : retired_) {
    BATON_CHECK(r.cycle > completed_);
    retiring += r.kind == Kind::kPage ? 1 : 0;
  }
  BATON_CHECK(retiring == retiring_pages_);
}

}  // namespace baton::sched
