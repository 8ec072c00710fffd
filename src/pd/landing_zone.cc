#include "pd/landing_zone.h"

#include <algorithm>

#include "base/check.h"
#include "cache/page_name.h"
#include "pd/planted_bug.h"

namespace baton::pd {

using cache::kPageUnits;

LandingZone::LandingZone(cache::IdPool& pages, cache::IdPool& slots, cache::PrefixTree& tree, int32_t look_ahead)
    : pages_(pages), slots_(slots), tree_(tree), look_ahead_(look_ahead) {}

bool LandingZone::reserve(uint64_t salt, std::span<const int32_t> tokens, bool cache, int32_t keep_pages, Landing& landing) {
  BATON_CHECK(landing.pages.empty() && landing.slot < 0);
  const auto count = std::ssize(tokens);
  const auto total = static_cast<int32_t>((count + kPageUnits - 1) / kPageUnits);
  path_.resize(static_cast<size_t>((count - look_ahead_) / kPageUnits));
  const uint64_t known_by = cache::tree_salt(salt, tokens.front(), look_ahead_);
  const int32_t matched = cache ? tree_.match(known_by, cache::tree_units(tokens, look_ahead_), path_) : 0;
  const int32_t missing = total - matched;
  const cache::Node node = matched > 0 ? path_[static_cast<size_t>(matched) - 1] : cache::kRoot;

  // Locking makes pages that could be evicted into pages that cannot: what is within reach is known behind it.
  int32_t within_reach = reachable();
  tree_.lock(node);
  if (!planted(Bug::kBudgetBeforeLock)) within_reach = reachable();
  if (slots_.free_count() == 0 || missing + keep_pages > within_reach) {
    tree_.unlock(node);
    return false;
  }
  if (const int32_t short_of = missing - pages_.free_count(); short_of > 0) {
    // A decode instance has no snapshots that would hang on its nodes.
    const int32_t freed = tree_.evict(short_of, [](cache::Node) {});
    BATON_CHECK_MSG(freed == short_of, "{} pages were within reach, {} could be evicted", short_of, freed);
    evicted_ += freed;
  }
  landing.pages.resize(static_cast<size_t>(total));
  std::copy_n(path_.begin(), matched, landing.pages.begin());
  const bool taken = pages_.take(std::span(landing.pages).subspan(static_cast<size_t>(matched))) && slots_.take({&landing.slot, 1});
  BATON_CHECK(taken);
  landing.matched_pages = landing.tree_pages = matched;
  landing.node = node;
  if (planted(Bug::kCachedEarly)) commit(salt, tokens, cache, landing);
  return true;
}

void LandingZone::commit(uint64_t salt, std::span<const int32_t> tokens, bool cache, Landing& landing) {
  if (!cache) return;
  const std::span<const int32_t> all = cache::tree_units(tokens, look_ahead_);
  const uint64_t known_by = cache::tree_salt(salt, tokens.front(), look_ahead_);
  const auto full = static_cast<size_t>(std::ssize(all) / kPageUnits);
  for (auto i = static_cast<size_t>(landing.tree_pages); i < full; ++i) {
    const std::span<const int32_t, kPageUnits> units(all.data() + i * kPageUnits, static_cast<size_t>(kPageUnits));
    const int32_t page = landing.pages[i];
    const cache::Node node = tree_.extend(landing.node, known_by, units, page);
    tree_.lock(node);
    tree_.unlock(landing.node);
    landing.node = node;
    landing.pages[i] = node;
    ++landing.tree_pages;
    if (node != page) pages_.release(page);  // another request has brought the same meanwhile; no cycle has touched this one
  }
}

void LandingZone::forget_match(Landing& landing) {
  tree_.unlock(landing.node);
  landing.node = cache::kRoot;
  landing.pages.erase(landing.pages.begin(), landing.pages.begin() + landing.tree_pages);
  landing.matched_pages = landing.tree_pages = 0;
}

void LandingZone::release(Landing& landing) {
  for (auto i = static_cast<size_t>(landing.tree_pages); i < landing.pages.size(); ++i) pages_.release(landing.pages[i]);
  if (!planted(Bug::kLockKeptOnAbort)) tree_.unlock(landing.node);
  slots_.release(landing.slot);
  landing = {};
}

}  // namespace baton::pd
