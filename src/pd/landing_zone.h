// The memory of a hand-over on the decode instance: what is matched, reserved, written from outside, and becomes cache.
//
// Prefix caching here goes by pages alone: attention rows depend on the tokens before them and may be shared, while the recurrent state of
// the whole prompt always comes from prefill. So a match needs no state behind it, and may be all of the prompt.
//
// Pages that are reserved are held (cache::Owner) and in no tree: nobody else sees what is still being written.
//
// Threads: none of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/id_pool.h"
#include "cache/prefix_tree.h"

namespace baton::pd {

struct Landing {
  int32_t slot = -1;
  std::vector<int32_t> pages;  // of the whole prompt; the first tree_pages belong to the tree, the others to the landing
  int32_t matched_pages = 0;   // of these, found; the others are to be received
  int32_t tree_pages = 0;
  cache::Node node = cache::kRoot;  // the last of the tree's pages, leased

  int32_t own_pages() const { return static_cast<int32_t>(pages.size()) - tree_pages; }
};

class LandingZone {
 public:
  // All outlive the zone. `look_ahead`: 1 where what a page holds depends on the token behind it, too (cache/page_name.h).
  LandingZone(cache::IdPool& pages, cache::IdPool& slots, cache::PrefixTree& tree, int32_t look_ahead = 0);

  // A slot and the pages that are missing, at the expense of the least recently used cached ones if need be; `keep_pages` stay within
  // reach of others. False if there is no room; nothing is held then. `cache`: may share pages with others.
  bool reserve(uint64_t salt, std::span<const int32_t> tokens, bool cache, int32_t keep_pages, Landing& landing);
  // Everything has arrived: full pages become cache, or give way to equal ones that are there by now.
  void commit(uint64_t salt, std::span<const int32_t> tokens, bool cache, Landing& landing);
  // The pages that were found are not its any more; what is reserved still is. For a landing that nobody will go on from.
  void forget_match(Landing& landing);
  // Gives everything back. Nothing may still be written into it.
  void release(Landing& landing);

  int64_t evicted_pages() const { return evicted_; }

 private:
  int32_t reachable() const { return pages_.free_count() + tree_.evictable_count(); }

  cache::IdPool& pages_;
  cache::IdPool& slots_;
  cache::PrefixTree& tree_;
  int32_t look_ahead_;
  std::vector<cache::Node> path_;
  int64_t evicted_ = 0;
};

}  // namespace baton::pd
