#include "cache/snapshot_cache.h"

#include "base/check.h"

namespace baton::cache {

SnapshotCache::SnapshotCache(int32_t snapshots, int32_t pages)
    : pool_(snapshots), entries_(static_cast<size_t>(snapshots)), by_node_(static_cast<size_t>(pages), kNoSnapshot) {}

int32_t SnapshotCache::take() {
  int32_t s = kNoSnapshot;
  if (pool_.take({&s, 1})) return s;
  if (oldest_ == kNoSnapshot) return kNoSnapshot;
  drop(at(oldest_).node);
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
  list_newest(snapshot);
}

int32_t SnapshotCache::deepest(std::span<const Node> path) {
  for (size_t i = path.size(); i > 0; --i) {
    const int32_t s = of(path[i - 1]);
    if (s == kNoSnapshot) continue;
    if (at(s).listed) {
      unlist(s);
      list_newest(s);
    }
    return static_cast<int32_t>(i - 1);
  }
  return -1;
}

void SnapshotCache::lock(int32_t snapshot) {
  BATON_CHECK(pool_.owner(snapshot) == Owner::kCached);
  if (at(snapshot).leases++ == 0) unlist(snapshot);
}

void SnapshotCache::unlock(int32_t snapshot) {
  Entry& e = at(snapshot);
  BATON_CHECK(pool_.owner(snapshot) == Owner::kCached && e.leases > 0);
  if (--e.leases > 0) return;
  if (e.node == kRoot)
    pool_.discard(snapshot);
  else
    list_newest(snapshot);
}

void SnapshotCache::drop(Node node) {
  int32_t& here = by_node_[static_cast<size_t>(node)];
  if (here == kNoSnapshot) return;
  Entry& e = at(here);
  e.node = kRoot;
  if (e.leases == 0) {
    unlist(here);
    pool_.discard(here);
  }
  here = kNoSnapshot;
}

void SnapshotCache::list_newest(int32_t s) {
  Entry& e = at(s);
  e.listed = true;
  e.newer = kNoSnapshot;
  e.older = newest_;
  (newest_ == kNoSnapshot ? oldest_ : at(newest_).newer) = s;
  newest_ = s;
}

void SnapshotCache::unlist(int32_t s) {
  Entry& e = at(s);
  if (!e.listed) return;
  (e.newer == kNoSnapshot ? newest_ : at(e.newer).older) = e.older;
  (e.older == kNoSnapshot ? oldest_ : at(e.older).newer) = e.newer;
  e.listed = false;
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
    listed += at(s).listed ? 1 : 0;
    BATON_CHECK(at(s).listed == (at(s).leases == 0));
    BATON_CHECK(at(s).node != kRoot || at(s).leases > 0);
  }
  int32_t walked = 0;
  for (int32_t s = oldest_; s != kNoSnapshot; s = at(s).newer) ++walked;
  BATON_CHECK(walked == listed && attached + orphans == pool_.cached_count());
}

}  // namespace baton::cache
