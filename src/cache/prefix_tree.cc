#include "cache/prefix_tree.h"

#include <sys/mman.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace baton::cache {
namespace {

constexpr Node kEmpty = -1;
constexpr size_t kPageBytes = kPageUnits * sizeof(Unit);
// Pages whose keys are computed, and whose memory is asked for, before the first of them is compared: a tree of a million pages lies far
// outside any processor cache, and waiting for one page after the other would cost several times the work.
constexpr size_t kAhead = 16;

void prefetch_page(const void* p) {
  for (size_t line = 0; line < kPageBytes; line += 64) __builtin_prefetch(static_cast<const char*>(p) + line);
}

// A match touches a page's units once, far apart: on small memory pages every one of them would miss the TLB too.
Unit* allocate_units(int32_t pages) {
  constexpr size_t kHugePage = 2 << 20;
  const size_t bytes = (static_cast<size_t>(pages) * kPageBytes + kHugePage - 1) / kHugePage * kHugePage;
  void* p = std::aligned_alloc(kHugePage, bytes > 0 ? bytes : kHugePage);
  BATON_CHECK_MSG(p != nullptr, "no memory for the units of {} pages", pages);
  madvise(p, bytes, MADV_HUGEPAGE);
  return static_cast<Unit*>(p);
}

}  // namespace

PrefixTree::PrefixTree(IdPool& pages)
    : pages_(pages), nodes_(static_cast<size_t>(pages.capacity())), units_(allocate_units(pages.capacity())),
      table_(std::bit_ceil(static_cast<size_t>(pages.capacity()) * 2 + 2), kEmpty), mask_(table_.size() - 1), leaves_(pages.capacity()) {}

uint64_t PrefixTree::key_of(uint64_t before, const Unit* units) { return XXH3_64bits_withSeed(units, kPageBytes, before); }

bool PrefixTree::stands_for(Node node, Node parent, uint64_t salt, const Unit* units) const {
  const Entry& e = at(node);
  return e.parent == parent && e.salt == salt && std::memcmp(this->units(node), units, kPageBytes) == 0;
}

Node PrefixTree::find(uint64_t key, Node parent, uint64_t salt, const Unit* units) const {
  for (size_t i = key & mask_; table_[i] != kEmpty; i = (i + 1) & mask_)
    if (at(table_[i]).key == key && stands_for(table_[i], parent, salt, units)) return table_[i];
  return kEmpty;
}

int32_t PrefixTree::match(uint64_t salt, std::span<const Unit> units, std::span<Node> out) {
  const size_t limit = std::min(units.size() / kPageUnits, out.size());
  uint64_t key = salt;
  Node parent = kRoot;
  size_t matched = 0;
  for (size_t first = 0; first < limit && matched == first; first += kAhead) {
    const size_t count = std::min(kAhead, limit - first);
    std::array<uint64_t, kAhead> keys;
    for (size_t i = 0; i < count; ++i) {
      key = keys[i] = key_of(key, &units[(first + i) * kPageUnits]);
      __builtin_prefetch(&table_[key & mask_]);
    }
    for (size_t i = 0; i < count; ++i) {
      const Node likely = table_[keys[i] & mask_];
      if (likely == kEmpty) continue;
      __builtin_prefetch(&at(likely));
      prefetch_page(this->units(likely));
    }
    for (size_t i = 0; i < count; ++i, ++matched) {
      const Node node = find(keys[i], parent, salt, &units[(first + i) * kPageUnits]);
      if (node == kEmpty) break;
      parent = out[matched] = node;
    }
  }
  if (parent != kRoot) touch(parent);
  return static_cast<int32_t>(matched);
}

Node PrefixTree::extend(Node parent, uint64_t salt, std::span<const Unit, kPageUnits> units, int32_t page) {
  BATON_CHECK(parent == kRoot || pages_.owner(parent) == Owner::kCached);
  const uint64_t key = key_of(parent == kRoot ? salt : at(parent).key, units.data());
  const Node known = find(key, parent, salt, units.data());
  if (known != kEmpty) {
    touch(known);
    return known;
  }
  pages_.adopt(page);
  at(page) = {.key = key, .salt = salt, .parent = parent, .last_use = ++uses_};
  std::memcpy(this->units(page), units.data(), kPageBytes);
  insert_key(key, page);
  ++size_;
  if (parent != kRoot) {
    ++at(parent).children;
    leaves_.remove(parent);
  }
  leaves_.put_newest(page);
  return page;
}

void PrefixTree::lock(Node node) {
  if (node == kRoot) return;
  BATON_CHECK(pages_.owner(node) == Owner::kCached);
  Entry& e = at(node);
  if (e.leases++ == 0) {
    ++locked_;
    leaves_.remove(node);
  }
  pin(node);
}

// Walks up to the first node that is kept anyway: a whole path for its first lease, one step for the next page of a leased path.
void PrefixTree::pin(Node node) {
  for (; node != kRoot && at(node).pins++ == 0; node = at(node).parent) ++pinned_;
}

void PrefixTree::unpin(Node node) {
  for (; node != kRoot && --at(node).pins == 0; node = at(node).parent) --pinned_;
}

void PrefixTree::unlock(Node node) {
  if (node == kRoot) return;
  Entry& e = at(node);
  BATON_CHECK_MSG(pages_.owner(node) == Owner::kCached && e.leases > 0, "page {} has no lease to give back", node);
  unpin(node);
  if (--e.leases > 0) return;
  --locked_;
  if (evictable(e)) leaves_.put_newest(node);
}

// A use of a node is a use of its ancestors; they become leaves only after it, so its own place in the list is all that counts.
void PrefixTree::touch(Node node) {
  at(node).last_use = ++uses_;
  if (leaves_.contains(node)) leaves_.put_newest(node);
}

void PrefixTree::remove(Node leaf) {
  const Node parent = at(leaf).parent;
  const uint64_t last_use = at(leaf).last_use;
  leaves_.remove(leaf);
  erase_key(leaf);
  pages_.discard(leaf);
  --size_;
  if (parent == kRoot) return;
  Entry& e = at(parent);
  --e.children;
  if (!evictable(e)) return;
  if (e.last_use > last_use)
    leaves_.put_newest(parent);
  else
    leaves_.put_oldest(parent);
}

void PrefixTree::insert_key(uint64_t key, Node node) {
  size_t i = key & mask_;
  while (table_[i] != kEmpty) i = (i + 1) & mask_;
  table_[i] = node;
}

// Linear probing without tombstones: entries behind the gap move up as long as that brings them no further from their home.
void PrefixTree::erase_key(Node node) {
  size_t gap = at(node).key & mask_;
  while (table_[gap] != node) gap = (gap + 1) & mask_;
  for (size_t i = (gap + 1) & mask_; table_[i] != kEmpty; i = (i + 1) & mask_) {
    const size_t home = at(table_[i]).key & mask_;
    if (((i - home) & mask_) < ((i - gap) & mask_)) continue;
    table_[gap] = table_[i];
    gap = i;
  }
  table_[gap] = kEmpty;
}

void PrefixTree::check_invariants() const {
  std::vector<int32_t> children(nodes_.size());
  std::vector<int32_t> pins(nodes_.size());
  int32_t nodes = 0;
  int32_t locked = 0;
  int32_t listed = 0;
  int32_t pinned = 0;
  for (Node n = 0; n < pages_.capacity(); ++n) {
    if (pages_.owner(n) != Owner::kCached) continue;
    ++nodes;
    const Entry& e = at(n);
    locked += e.leases > 0 ? 1 : 0;
    listed += leaves_.contains(n) ? 1 : 0;
    if (e.parent != kRoot) {
      BATON_CHECK_MSG(pages_.owner(e.parent) == Owner::kCached, "page {} hangs on page {}, which is not in the tree", n, e.parent);
      ++children[static_cast<size_t>(e.parent)];
      pins[static_cast<size_t>(e.parent)] += e.pins > 0 ? 1 : 0;
    }
    pinned += e.pins > 0 ? 1 : 0;
    BATON_CHECK(e.key == key_of(e.parent == kRoot ? e.salt : at(e.parent).key, units(n)));
    BATON_CHECK(find(e.key, e.parent, e.salt, units(n)) == n);
  }
  for (Node n = 0; n < pages_.capacity(); ++n) {
    if (pages_.owner(n) != Owner::kCached) continue;
    BATON_CHECK_MSG(at(n).children == children[static_cast<size_t>(n)], "page {} counts {} children, has {}", n, at(n).children,
                    children[static_cast<size_t>(n)]);
    BATON_CHECK(at(n).pins == at(n).leases + pins[static_cast<size_t>(n)]);
    BATON_CHECK(leaves_.contains(n) == evictable(at(n)));
  }
  int32_t walked = 0;
  for (Node n = leaves_.oldest(); n != UseList::kNone; n = leaves_.newer(n)) ++walked;
  BATON_CHECK(nodes == size_ && locked == locked_ && pinned == pinned_ && walked == listed && nodes == pages_.cached_count());
}

}  // namespace baton::cache
