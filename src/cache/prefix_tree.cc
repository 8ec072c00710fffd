#include "cache/prefix_tree.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace baton::cache {
namespace {

constexpr Node kEmpty = -1;
constexpr size_t kHalfBytes = kPageUnits * sizeof(uint32_t);
// Pages whose keys are computed, and whose memory is asked for, before the first of them is compared: a tree of a million pages lies far
// outside any processor cache, and waiting for one page after the other would cost several times the work.
constexpr size_t kAhead = 16;

void prefetch_half(const void* p) {
  for (size_t line = 0; line < kHalfBytes; line += 64) __builtin_prefetch(static_cast<const char*>(p) + line);
}

}  // namespace

PrefixTree::HalfArray PrefixTree::allocate_halves(int32_t pages) {
  void* p = allocate_on_huge_pages(static_cast<size_t>(pages) * kHalfBytes);
  BATON_CHECK_MSG(p != nullptr, "no memory for the units of {} pages", pages);
  return HalfArray(static_cast<uint32_t*>(p));
}

PrefixTree::Halves PrefixTree::halves_of(const Unit* units, SplitUnits& room) {
  uint32_t any = 0;
  for (size_t i = 0; i < kPageUnits; ++i) {
    room.low[i] = static_cast<uint32_t>(units[i]);
    room.high[i] = static_cast<uint32_t>(units[i] >> 32U);
    any |= room.high[i];
  }
  return {room.low.data(), any != 0 ? room.high.data() : nullptr};
}

PrefixTree::Halves PrefixTree::halves_of(const int32_t* tokens, NothingToSplit&) {
  return {reinterpret_cast<const uint32_t*>(tokens), nullptr};
}

PrefixTree::Halves PrefixTree::stored(Node node) const { return {low(node), at(node).wide ? high(node) : nullptr}; }

PrefixTree::PrefixTree(IdPool& pages)
    : pages_(pages), nodes_(static_cast<size_t>(pages.capacity())), low_(allocate_halves(pages.capacity())),
      high_(allocate_halves(pages.capacity())), table_(std::bit_ceil(static_cast<size_t>(pages.capacity()) * 2 + 2), Place{0, kEmpty}),
      mask_(table_.size() - 1), leaves_(pages.capacity()) {}

// Hashes of pages, chained by a multiplication: seeding XXH3 instead would set up a secret for every page. Keys need not resist an
// adversary, since lookups compare the units.
uint64_t PrefixTree::key_of(uint64_t before, const Halves& units) {
  constexpr uint64_t kOdd = 0x9FB21C651E98DF25;
  uint64_t hash = XXH3_64bits(units.low, kHalfBytes);
  if (units.wide()) hash ^= std::rotl(XXH3_64bits(units.high, kHalfBytes), 17);
  const uint64_t mixed = (std::rotl(before, 29) ^ hash) * kOdd;
  return mixed ^ (mixed >> 32U);
}

bool PrefixTree::stands_for(Node node, Node parent, uint64_t salt, const Halves& units) const {
  const Entry& e = at(node);
  return e.parent == parent && e.salt == salt && e.wide == units.wide() && std::memcmp(low(node), units.low, kHalfBytes) == 0 &&
         (!units.wide() || std::memcmp(high(node), units.high, kHalfBytes) == 0);
}

Node PrefixTree::find(uint64_t key, Node parent, uint64_t salt, const Halves& units) const {
  for (size_t i = key & mask_; table_[i].node != kEmpty; i = (i + 1) & mask_)
    if (table_[i].tag == tag_of(key) && at(table_[i].node).key == key && stands_for(table_[i].node, parent, salt, units))
      return table_[i].node;
  return kEmpty;
}

// The first node with this key's tag: hardly ever another one than find() will look at.
Node PrefixTree::probe(uint64_t key) const {
  size_t i = key & mask_;
  while (table_[i].node != kEmpty && table_[i].tag != tag_of(key)) i = (i + 1) & mask_;
  return table_[i].node;
}

// Three groups of pages are under way at any time: of one the keys are computed and its places in the table asked for; of the one before it
// entries and units are asked for; the one before that is compared. Groups that turn out to lie behind the match cost a little too much.
template <class Room, class T>
int32_t PrefixTree::match_pages(uint64_t salt, std::span<const T> units, std::span<Node> out) {
  struct Group {
    size_t count = 0;
    std::array<uint64_t, kAhead> keys;
    std::array<Halves, kAhead> halves;
    std::array<Room, kAhead> room;
  };
  const size_t limit = std::min(units.size() / kPageUnits, out.size());
  std::array<Group, 3> groups;
  uint64_t key = salt;
  Node parent = kRoot;
  size_t matched = 0;
  const size_t group_count = (limit + kAhead - 1) / kAhead;
  for (size_t step = 0; step < group_count + 2; ++step) {
    if (step < group_count) {
      Group& g = groups[step % 3];
      g.count = std::min(kAhead, limit - step * kAhead);
      for (size_t i = 0; i < g.count; ++i) {
        g.halves[i] = halves_of(&units[(step * kAhead + i) * kPageUnits], g.room[i]);
        key = g.keys[i] = key_of(key, g.halves[i]);
        __builtin_prefetch(&table_[key & mask_]);
      }
    }
    if (step >= 1 && step < group_count + 1) {
      const Group& g = groups[(step - 1) % 3];
      for (size_t i = 0; i < g.count; ++i) {
        const Node likely = probe(g.keys[i]);
        if (likely == kEmpty) continue;
        __builtin_prefetch(&at(likely));
        prefetch_half(low(likely));
      }
    }
    if (step >= 2) {
      const Group& g = groups[(step - 2) % 3];
      size_t i = 0;
      for (; i < g.count; ++i) {
        const Node node = find(g.keys[i], parent, salt, g.halves[i]);
        if (node == kEmpty) break;
        parent = out[matched++] = node;
      }
      if (i < g.count) break;
    }
  }
  if (parent != kRoot) touch(parent);
  return static_cast<int32_t>(matched);
}

int32_t PrefixTree::match(uint64_t salt, std::span<const Unit> units, std::span<Node> out) {
  return match_pages<SplitUnits>(salt, units, out);
}

int32_t PrefixTree::match(uint64_t salt, std::span<const int32_t> tokens, std::span<Node> out) {
  return match_pages<NothingToSplit>(salt, tokens, out);
}

Node PrefixTree::extend(Node parent, uint64_t salt, std::span<const Unit, kPageUnits> units, int32_t page) {
  SplitUnits room;
  return extend_by(parent, salt, halves_of(units.data(), room), page);
}

Node PrefixTree::extend(Node parent, uint64_t salt, std::span<const int32_t, kPageUnits> tokens, int32_t page) {
  NothingToSplit room;
  return extend_by(parent, salt, halves_of(tokens.data(), room), page);
}

Node PrefixTree::extend_by(Node parent, uint64_t salt, const Halves& halves, int32_t page) {
  BATON_CHECK(parent == kRoot || pages_.owner(parent) == Owner::kCached);
  const uint64_t key = key_of(parent == kRoot ? salt : at(parent).key, halves);
  const Node known = find(key, parent, salt, halves);
  if (known != kEmpty) {
    touch(known);
    return known;
  }
  pages_.adopt(page);
  at(page) = {.key = key, .salt = salt, .parent = parent, .last_use = ++uses_, .wide = halves.wide()};
  std::copy_n(halves.low, kPageUnits, low(page));
  if (halves.wide()) std::copy_n(halves.high, kPageUnits, high(page));
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
  ++unlocked_;
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
  while (table_[i].node != kEmpty) i = (i + 1) & mask_;
  table_[i] = {tag_of(key), node};
}

// Linear probing without tombstones: entries behind the gap move up as long as that brings them no further from their home.
void PrefixTree::erase_key(Node node) {
  size_t gap = at(node).key & mask_;
  while (table_[gap].node != node) gap = (gap + 1) & mask_;
  for (size_t i = (gap + 1) & mask_; table_[i].node != kEmpty; i = (i + 1) & mask_) {
    const size_t home = table_[i].tag & mask_;
    if (((i - home) & mask_) < ((i - gap) & mask_)) continue;
    table_[gap] = table_[i];
    gap = i;
  }
  table_[gap] = {0, kEmpty};
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
    const Halves units = stored(n);
    BATON_CHECK(e.key == key_of(e.parent == kRoot ? e.salt : at(e.parent).key, units));
    BATON_CHECK(find(e.key, e.parent, e.salt, units) == n);
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
