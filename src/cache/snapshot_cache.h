// Snapshots of recurrent state at page edges: which node of the tree has one, and which goes first when room is needed.
//
// A snapshot is as large as hundreds of pages, so it has its own budget and its own order of eviction; a node may hold pages without state.
//
// Threads: none of its own. Nothing is allocated after construction.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/id_pool.h"
#include "cache/prefix_tree.h"
#include "cache/use_list.h"

namespace baton::cache {

inline constexpr int32_t kNoSnapshot = -1;

class SnapshotCache {
 public:
  // Room for `snapshots`, over a tree of `pages` pages.
  SnapshotCache(int32_t snapshots, int32_t pages);

  // A snapshot to fill (held), evicting the least recently used one without a lease if none is free; kNoSnapshot if all are leased or held.
  int32_t take();
  // A filled snapshot becomes the state behind `node`. If the node has one already, the new one is given back: they are equal.
  void attach(Node node, int32_t snapshot);
  // Gives a held snapshot back unused.
  void release(int32_t snapshot) { pool_.release(snapshot); }

  // The last of a path's nodes that has a snapshot: its index in `path`, or -1. Counts as a use.
  int32_t deepest(std::span<const Node> path);
  int32_t of(Node node) const { return by_node_[static_cast<size_t>(node)]; }

  // A lease keeps the snapshot while it is read. The node may go meanwhile; the snapshot follows when the lease ends.
  void lock(int32_t snapshot);
  void unlock(int32_t snapshot);

  // The node leaves the tree, and its snapshot with it.
  void drop(Node node);

  const IdPool& pool() const { return pool_; }
  void check_invariants() const;

 private:
  struct Entry {
    Node node = kRoot;  // kRoot: the node is gone
    int32_t leases = 0;
  };
  Entry& at(int32_t s) { return entries_[static_cast<size_t>(s)]; }
  const Entry& at(int32_t s) const { return entries_[static_cast<size_t>(s)]; }

  IdPool pool_;
  std::vector<Entry> entries_;
  std::vector<int32_t> by_node_;
  UseList unleased_;  // those that may be evicted
};

}  // namespace baton::cache
