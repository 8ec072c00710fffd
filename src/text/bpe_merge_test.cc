// The two ways of merging against each other and against the definition.
#include "text/bpe_merge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

namespace baton::text {
namespace {

// The definition: of all pairs the one of lowest rank, of equal ones the leftmost, until none is left.
std::vector<int32_t> by_definition(const std::map<std::pair<int32_t, int32_t>, Merge>& merges, std::vector<int32_t> symbols) {
  while (true) {
    size_t best = symbols.size();
    Merge found{MergeTable::kNoRank, -1};
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto at = merges.find({symbols[i], symbols[i + 1]});
      if (at != merges.end() && at->second.rank < found.rank) {
        best = i;
        found = at->second;
      }
    }
    if (best == symbols.size()) return symbols;
    symbols[best] = found.id;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(BpeMerge, AllWaysAgree) {
  constexpr uint64_t kSeed = 11;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 300; ++round) {
    // Ranks in any order, also in such as no training gives: later merges may come before those that they build on.
    const int32_t letters = 1 + static_cast<int32_t>(random() % 4);
    const int32_t count = static_cast<int32_t>(random() % 40);
    std::vector<uint32_t> ranks;
    for (int32_t i = 0; i < count; ++i) ranks.push_back(static_cast<uint32_t>(i));
    if (round % 2 == 0) std::shuffle(ranks.begin(), ranks.end(), random);
    std::map<std::pair<int32_t, int32_t>, Merge> merges;
    MergeTable table;
    for (int32_t i = 0; i < count; ++i) {
      const int32_t id = letters + i;
      const auto part = [&] { return static_cast<int32_t>(random() % static_cast<uint64_t>(id)); };
      const std::pair<int32_t, int32_t> pair = {part(), part()};
      if (!merges.try_emplace(pair, Merge{ranks[static_cast<size_t>(i)], id}).second) continue;
      table.insert(pair.first, pair.second, merges[pair]);
    }
    for (int word = 0; word < 20; ++word) {
      std::vector<int32_t> symbols;
      for (size_t n = random() % 60; n > 0; --n) symbols.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(letters)));
      const auto expected = by_definition(merges, symbols);
      auto scanned = symbols, bucketed = symbols;
      BpeMerger merger;
      merger.merge_by_scanning(table, scanned);
      merger.merge_by_buckets(table, bucketed);
      ASSERT_EQ(scanned, expected) << round;
      ASSERT_EQ(bucketed, expected) << round;
    }
  }
}

TEST(BpeMerge, TableGrowsAndReplaces) {
  MergeTable table;
  for (int32_t i = 0; i < 1000; ++i) table.insert(i, i + 1, {static_cast<uint32_t>(i), i});
  table.insert(5, 6, {77, 78});
  EXPECT_EQ(table.size(), 1000U);
  EXPECT_EQ(table.find(5, 6).rank, 77U);
  EXPECT_EQ(table.find(999, 1000).id, 999);
  EXPECT_EQ(table.find(6, 5).rank, MergeTable::kNoRank);
}

}  // namespace
}  // namespace baton::text
