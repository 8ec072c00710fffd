// The prefix tree: which pages hold the cache of which token runs, shared between requests, exact.
//
// A node is a page: it stands for kPageUnits units behind the units of its ancestors, and its id is the page's id. Requests that part
// inside a page share nothing of it. Units are opaque 64-bit values; a salt (tenant, adapter) keeps runs apart that must not be shared.
// Lookups compare every unit, so a hash collision costs time and never correctness.
//
// A lease on a node keeps it and all its ancestors: only leaves are evicted, and a leased node is not. Eviction takes the least recently
// used leaf first; a node that becomes a leaf goes next, unless it was itself used after its last child: then it gets another round.
// A node may carry a snapshot: the recurrent state behind its last unit, with a lifetime of its own (see SnapshotCache).
//
// Threads: none of its own. Nothing is allocated after construction; no operation walks more than the pages it names.
#pragma once

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>
#include <vector>

#include "cache/huge_pages.h"
#include "cache/id_pool.h"
#include "cache/use_list.h"

namespace baton::cache {

using Unit = uint64_t;
using Node = int32_t;  // a page id, or kRoot

inline constexpr int64_t kPageUnits = 64;
inline constexpr Node kRoot = -1;

class PrefixTree {
 public:
  // `pages` outlives the tree; nodes are pages that the tree owns (Owner::kCached).
  explicit PrefixTree(IdPool& pages);

  // The longest cached run of whole pages at the start of `units`, at most out.size() pages; writes their ids. Counts as a use.
  int32_t match(uint64_t salt, std::span<const Unit> units, std::span<Node> out);
  // The same for token ids, which are units and not negative; they are read where they lie.
  int32_t match(uint64_t salt, std::span<const int32_t> tokens, std::span<Node> out);

  // Puts a page behind `parent` (kRoot: at the start). `page` must be held by the caller.
  // Returns the node that now stands for these units: `page`, which the tree has adopted, or an older page with the same content, in which
  // case the caller keeps its own. Counts as a use.
  Node extend(Node parent, uint64_t salt, std::span<const Unit, kPageUnits> units, int32_t page);
  Node extend(Node parent, uint64_t salt, std::span<const int32_t, kPageUnits> tokens, int32_t page);

  // Leases count; lock and unlock pair. The root needs none.
  void lock(Node node);
  void unlock(Node node);

  // Frees up to `count` pages, least recently used leaves first, and returns how many. `dropped` is told each node before it is freed, so
  // that what hangs on it can be freed too.
  template <class Dropped>
  int32_t evict(int32_t count, const Dropped& dropped) {
    int32_t freed = 0;
    for (; freed < count && leaves_.oldest() != UseList::kNone; ++freed) {
      const Node leaf = leaves_.oldest();
      dropped(leaf);
      remove(leaf);
    }
    return freed;
  }

  int32_t size() const { return size_; }
  int32_t locked_count() const { return locked_; }             // nodes with at least one lease of their own
  int64_t unlocked() const { return unlocked_; }               // leases that were given back, in all
  int32_t evictable_count() const { return size_ - pinned_; }  // how many pages evict() could free, one after the other
  Node parent(Node node) const { return nodes_[static_cast<size_t>(node)].parent; }

  // Recomputes everything that is kept incrementally and stops the process on a difference. For tests and debug builds; slow.
  void check_invariants() const;

 private:
  // The units of a page in halves. Token ids leave the upper ones zero; then these are neither stored nor read, which halves the memory
  // that a match has to wait for.
  struct Halves {
    const uint32_t* low;
    const uint32_t* high;  // nullptr: all zero

    bool wide() const { return high != nullptr; }
  };
  // Where units are split, if they have to be.
  struct SplitUnits {
    std::array<uint32_t, kPageUnits> low;
    std::array<uint32_t, kPageUnits> high;
  };
  struct NothingToSplit {};
  static Halves halves_of(const Unit* units, SplitUnits& room);
  static Halves halves_of(const int32_t* tokens, NothingToSplit&);
  // One cache line, so that looking at an entry is one wait for memory.
  struct alignas(64) Entry {
    uint64_t key = 0;  // hash of salt and all units up to and with this page
    uint64_t salt = 0;
    Node parent = kRoot;
    int32_t children = 0;
    int32_t leases = 0;
    int32_t pins = 0;       // leases, and children with pins: > 0 keeps the node
    uint64_t last_use = 0;  // by uses_
    bool wide = false;      // it has upper halves
  };

  template <class Room, class T>
  int32_t match_pages(uint64_t salt, std::span<const T> units, std::span<Node> out);
  Node extend_by(Node parent, uint64_t salt, const Halves& units, int32_t page);
  static uint64_t key_of(uint64_t before, const Halves& units);
  Halves stored(Node node) const;
  uint32_t* low(Node node) const { return low_.get() + static_cast<size_t>(node) * kPageUnits; }
  uint32_t* high(Node node) const { return high_.get() + static_cast<size_t>(node) * kPageUnits; }
  Entry& at(Node node) { return nodes_[static_cast<size_t>(node)]; }
  const Entry& at(Node node) const { return nodes_[static_cast<size_t>(node)]; }
  bool stands_for(Node node, Node parent, uint64_t salt, const Halves& units) const;
  Node find(uint64_t key, Node parent, uint64_t salt, const Halves& units) const;
  Node probe(uint64_t key) const;
  static uint32_t tag_of(uint64_t key) { return static_cast<uint32_t>(key); }
  void insert_key(uint64_t key, Node node);
  void erase_key(Node node);
  void touch(Node node);
  void remove(Node leaf);
  void pin(Node node);
  void unpin(Node node);
  bool evictable(const Entry& e) const { return e.children == 0 && e.leases == 0; }

  IdPool& pages_;
  std::vector<Entry, HugePages<Entry>> nodes_;
  struct Free {
    void operator()(uint32_t* p) const { std::free(p); }
  };
  using HalfArray = std::unique_ptr<uint32_t[], Free>;
  static HalfArray allocate_halves(int32_t pages);
  HalfArray low_;   // [capacity, kPageUnits]
  HalfArray high_;  // likewise; touched for wide pages alone
  // The tag, the lower half of the key, says where the entry would like to be and tells nearly all others apart without a look at the node.
  struct Place {
    uint32_t tag;
    Node node;
  };
  std::vector<Place, HugePages<Place>> table_;  // open addressing by key; a power of two, at most half full
  size_t mask_;
  UseList leaves_;  // the evictable ones
  int32_t size_ = 0;
  int32_t locked_ = 0;
  int32_t pinned_ = 0;
  int64_t unlocked_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace baton::cache
