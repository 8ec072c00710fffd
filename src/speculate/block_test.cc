#include "speculate/block.h"

#include <gtest/gtest.h>

#include <vector>

#include "speculate/metrics.h"

namespace baton::speculate {
namespace {

using Tokens = std::vector<int32_t>;

TEST(Block, NothingExistsBehindAStopToken) {
  const Tokens stops = {5, 9};
  const Limits limits{.min_tokens = 0, .most = 100, .stop_tokens = stops};
  EXPECT_EQ(keep(Tokens{1, 2, 3}, 10, limits).tokens, 3);
  EXPECT_EQ(keep(Tokens{1, 2, 3}, 10, limits).end, End::kNone);
  EXPECT_EQ(keep(Tokens{1, 9, 3, 5}, 10, limits).tokens, 2);
  EXPECT_EQ(keep(Tokens{1, 9, 3, 5}, 10, limits).end, End::kStop);
}

TEST(Block, StopTokensBeforeMinTokensAreTokensLikeOthers) {
  const Tokens stops = {5};
  const Limits limits{.min_tokens = 12, .most = 100, .stop_tokens = stops};
  const Kept kept = keep(Tokens{5, 5, 5, 5}, 10, limits);  // the 11th, 12th, 13th
  EXPECT_EQ(kept.tokens, 3);
  EXPECT_EQ(kept.end, End::kStop);
}

TEST(Block, TheLimitMayLieInsideABlock) {
  const Tokens stops = {5};
  const Limits limits{.min_tokens = 0, .most = 12, .stop_tokens = stops};
  EXPECT_EQ(keep(Tokens{1, 2, 3}, 10, limits).tokens, 2);
  EXPECT_EQ(keep(Tokens{1, 2, 3}, 10, limits).end, End::kLength);
  EXPECT_EQ(keep(Tokens{1, 5, 3}, 10, limits).end, End::kStop) << "a stop token in the last place is a stop";
}

// The same as asking after each token, whatever the blocks.
TEST(Block, HowATextIsCutIntoBlocksDoesNotMatter) {
  const Tokens stops = {3};
  for (const int64_t min_tokens : {0, 5, 20})
    for (const int64_t most : {1, 7, 40})
      for (int32_t first = 1; first <= 8; ++first) {
        const Limits limits{.min_tokens = min_tokens, .most = most, .stop_tokens = stops};
        Tokens text(64);
        for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<int32_t>(i * 7 % 11);
        int64_t alone = 0;
        while (end_with(text[static_cast<size_t>(alone)], alone + 1, limits) == End::kNone) ++alone;
        int64_t generated = 0;
        Kept kept{0, End::kNone};
        for (int32_t size = first; kept.end == End::kNone; size = size % 8 + 1) {
          kept = keep(std::span(text).subspan(static_cast<size_t>(generated), static_cast<size_t>(size)), generated, limits);
          generated += kept.tokens;
        }
        EXPECT_EQ(generated, alone + 1);
      }
}

TEST(Block, DraftsEndBeforeTheRowsDo) {
  EXPECT_EQ(drafts_that_fit(7, 10, 100), 7);
  EXPECT_EQ(drafts_that_fit(7, 92, 100), 7);
  EXPECT_EQ(drafts_that_fit(7, 93, 100), 6);
  EXPECT_EQ(drafts_that_fit(7, 99, 100), 0);
  EXPECT_EQ(drafts_that_fit(7, 100, 100), 0);
}

TEST(SpeculationMetrics, CountDraftsByPlaceAndBlocksByLength) {
  Metrics m;
  EXPECT_EQ(m.accepted_length(), 0);
  m.add(7, 3);
  m.add(7, 7);
  m.add(0, 0);
  EXPECT_EQ(m.blocks, 3);
  EXPECT_EQ(m.tokens, 4 + 8 + 1);
  EXPECT_EQ(m.drafted, 14);
  EXPECT_EQ(m.accepted, 10);
  EXPECT_EQ(m.drafted_at[0], 2);
  EXPECT_EQ(m.accepted_at[2], 2);
  EXPECT_EQ(m.accepted_at[3], 1);
  EXPECT_EQ(m.blocks_of[1], 1);
  EXPECT_EQ(m.blocks_of[4], 1);
  EXPECT_EQ(m.blocks_of[8], 1);
  Metrics twice = m;
  twice.add(m);
  EXPECT_EQ(twice.tokens, 2 * m.tokens);
  EXPECT_DOUBLE_EQ(twice.accepted_length(), m.accepted_length());
}

}  // namespace
}  // namespace baton::speculate
