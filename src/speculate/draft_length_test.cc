#include "speculate/draft_length.h"

#include <gtest/gtest.h>

#include <random>

#include "base/test_seed.h"

namespace baton::speculate {
namespace {

// Cycles of `base` seconds and `per_draft` for each draft of each sequence.
CycleCosts costs(double base, double per_draft) {
  CycleCosts c;
  for (int64_t i = 0; i < 200; ++i) {
    const int64_t sequences = 1 + i % 4;
    const int64_t drafts = sequences * (i % 8);
    c.observe(sequences, drafts, base * static_cast<double>(sequences) + per_draft * static_cast<double>(drafts));
  }
  return c;
}

TEST(CycleCosts, AreReadOffCyclesThatDiffer) {
  const CycleCosts c = costs(0.010, 0.002);
  EXPECT_NEAR(c.share(), 0.010, 1e-6);
  EXPECT_NEAR(c.per_draft(), 0.002, 1e-6);
}

TEST(DraftLength, WithoutCostsItIsTheMost) { EXPECT_EQ(DraftLength().best({}, 7), 7); }

// Where each draft is right with probability p, the best length is known: E(k) = (1 - p^(k+1)) / (1 - p).
TEST(DraftLength, IsNearTheBestForEveryRateOfAcceptance) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
  std::mt19937 random(seed);
  for (const double p : {0.05, 0.3, 0.6, 0.8, 0.95}) {
    for (const double per_draft : {0.0005, 0.002, 0.008}) {
      DraftLength length;
      std::bernoulli_distribution right(p);
      for (int i = 0; i < 300; ++i) {
        int32_t accepted = 0;
        while (accepted < 7 && right(random)) ++accepted;
        length.observe(7, accepted);
      }
      const auto worth = [&](int32_t k) {
        double tokens = 0, likely = 1;
        for (int32_t i = 0; i <= k; ++i, likely *= p) tokens += likely;
        return tokens / (0.010 + per_draft * k);
      };
      double best = 0;
      for (int32_t k = 0; k <= 7; ++k) best = std::max(best, worth(k));
      EXPECT_GT(worth(length.best(costs(0.010, per_draft), 7)), 0.85 * best) << "p " << p << ", draft " << per_draft;
    }
  }
}

TEST(DraftLength, AfterABadStretchItTriesAgain) {
  DraftLength length;
  const CycleCosts c = costs(0.010, 0.002);
  for (int i = 0; i < 100; ++i) length.observe(7, 0);
  EXPECT_EQ(length.best(c, 7), 0);
  for (int i = 0; i < 200; ++i) length.observe(0, 0);
  EXPECT_GT(length.best(c, 7), 0);
}

}  // namespace
}  // namespace baton::speculate
