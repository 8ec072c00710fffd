#include "cache/snapshot_cache.h"

#include "base/check.h"

namespace baton::cache {

SnapshotCache::SnapshotCache(int32_t snapshots, int32_t pages)
    : pool_(snapshots), entries_(static_cast<size_t>(snapshots)), by_node_(static_cast<size_t>(pages), kNoSnapshot), unleased_(snapshots) {}

int32_t SnapshotCache::take() {
  int32_t s = kNoSnapshot;
  if (pool_.take({&s, 1})) return s;
  if (unleased_.oldest() == UseList::kNone) return kNoSnapshot;
  drop(at(unleased_.oldest()).node);
  const bool taken = pool_.take({&s, 1});
  BATON_CHECK(taken);
  return s;
}

void SnapshotCache::attach(Node node, int32_t snapshot) {
  int32_t& here = by_node_[static_cast<size_t>(node)];
  if (here != kNoSnapshot) return pool_.release(snapshot);
  pool_.adopt(snapshot);
  here = snapshot;
  at(snapshot) = {.node = node};
  unleased_.put_newest(snapshot);
}

int32_t SnapshotCache::deepest(std::span<const Node> path) {
  for (size_t i = path.size(); i > 0; --i) {
    const int32_t s = of(path[i - 1]);
    if (s == kNoSnapshot) continue;
    if (unleased_.contains(s)) unleased_.put_newest(s);
    return static_cast<int32_t>(i - 1);
  }
  return -1;
}

void SnapshotCache::lock(int32_t snapshot) {
  BATON_CHECK(pool_.owner(snapshot) == Owner::kCached);
  if (at(snapshot).leases++ == 0) unleased_.remove(snapshot);
}

void SnapshotCache::unlock(int32_t snapshot) {
  Entry& e = at(snapshot);
  BATON_CHECK(pool_.owner(snapshot) == Owner::kCached && e.leases > 0);
  if (--e.leases > 0) return;
  if (e.node == kRoot)
    pool_.discard(snapshot);
  else
    unleased_.put_newest(snapshot);
}

void SnapshotCache::drop(Node node) {
  int32_t& here = by_node_[static_cast<size_t>(node)];
  if (here == kNoSnapshot) return;
  Entry& e = at(here);
  e.node = kRoot;
  if (e.leases == 0) {
    unleased_.remove(here);
    pool_.discard(here);
  }
  here = kNoSnapshot;
}

void SnapshotCache::check_invariants() const {
  int32_t attached = 0;
  for (size_t n = 0; n < by_node_.size(); ++n) {
    const int32_t s = by_node_[n];
    if (s == kNoSnapshot) continue;
    ++attached;
    BATON_CHECK(pool_.owner(s) == Owner::kCached && at(s).node == static_cast<Node>(n));
  }
  int32_t orphans = 0;
  int32_t listed = 0;
  for (int32_t s = 0; s < pool_.capacity(); ++s) {
    if (pool_.owner(s) != Owner::kCached) continue;
    orphans += at(s).node == kRoot ? 1 : 0;
    listed += unleased_.contains(s) ? 1 : 0;
    BATON_CHECK(unleased_.contains(s) == (at(s).leases == 0));
    BATON_CHECK(at(s).node != kRoot || at(s).leases > 0);
  }
  int32_t walked = 0;
  for (int32_t s = unleased_.oldest(); s != UseList::kNone; s = unleased_.newer(s)) ++walked;
  BATON_CHECK(walked == listed && attached + orphans == pool_.cached_count());
}

}  // namespace baton::cache
