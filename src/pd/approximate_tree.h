// What a prefill instance probably has in its prefix cache: what it was sent, as far as that is recent, corrected by what it reports.
//
// A page is remembered by a hash of all tokens up to its end. Being wrong costs time, never correctness, so neither tokens nor links are
// kept, and what is used least goes when there is no room.
//
// Threads: none of its own.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "cache/use_list.h"

namespace baton::pd {

using PageKey = uint64_t;

// The keys of a prompt's full pages.
std::vector<PageKey> page_keys(uint64_t salt, std::span<const int32_t> tokens);

class ApproximateTree {
 public:
  explicit ApproximateTree(int32_t capacity_pages);

  // How many of the first pages it has, probably.
  int32_t match(std::span<const PageKey> keys) const;
  // It will have them all.
  void remember(std::span<const PageKey> keys);
  // It turned out not to have these, and will not.
  void forget(std::span<const PageKey> keys);
  // `missing` pages that were believed to be there were not. An instance evicts what it has used least, as this tree does: its cache is
  // smaller than believed, and so many more of the oldest are gone.
  void correct(int32_t missing);
  void clear();

  int32_t size() const { return static_cast<int32_t>(places_.size()); }
  int64_t corrections() const { return corrections_; }

 private:
  void drop(int32_t place);

  std::unordered_map<PageKey, int32_t> places_;
  std::vector<PageKey> keys_;  // by place
  std::vector<int32_t> free_;
  cache::UseList uses_;
  int64_t corrections_ = 0;
};

}  // namespace baton::pd
