#include "ops/cpu/logit_filter.h"

#include <algorithm>
#include <vector>

#include "ops/cpu/sample_test_support.h"
#include "ops/cpu/test_support.h"

namespace baton::cpu::testing {
namespace {

// Sizes around the blocks of the passes, and one of a vocabulary's order.
constexpr int64_t kSizes[] = {1, 2, 31, 32, 33, 100, 2047, 2049, 5000, 20000};

// Half of the rows lie on a grid, so that they are full of ties; some tokens are removed.
std::vector<float> random_row(Random& random, int64_t n) {
  std::vector<float> logits = random.normal(n, random.integer(0, 1) == 0 ? 1 : 6);
  if (random.integer(0, 1) == 0)
    for (float& l : logits) l = std::round(l * 4) / 4;
  for (int64_t removed = random.integer(0, 1) * random.integer(0, n - 1); removed > 0; --removed)
    logits[static_cast<size_t>(random.integer(0, n - 1))] = -INFINITY;
  logits[static_cast<size_t>(random.integer(0, n - 1))] = 1;
  return logits;
}

TEST(LogitRow, PeakAndMostLikelyAreThoseOfASort) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const int64_t n = kSizes[seed % std::size(kSizes)];
    const std::vector<float> logits = random_row(random, n);
    std::vector<Candidate> sorted;
    for (int64_t i = 0; i < n; ++i) sorted.push_back({logits[static_cast<size_t>(i)], static_cast<int32_t>(i)});
    std::sort(sorted.begin(), sorted.end(), more_likely);

    const Peak peak = find_peak(logits.data(), n);
    EXPECT_EQ(peak.token, sorted[0].token);
    EXPECT_EQ(peak.logit, sorted[0].logit);
    EXPECT_EQ(peak.finite, sorted.back().logit != -INFINITY);

    while (sorted.back().logit == -INFINITY) sorted.pop_back();
    std::vector<Candidate> out(static_cast<size_t>(n));
    for (const int64_t k : {int64_t{0}, int64_t{1}, int64_t{20}, random.integer(1, n), n, n + 5}) {
      const int64_t count = most_likely(logits.data(), n, k, out.data());
      ASSERT_EQ(count, std::min<int64_t>(k, static_cast<int64_t>(sorted.size()))) << "k " << k;
      if (count == 0) continue;
      EXPECT_EQ(out[static_cast<size_t>(count) - 1].token, sorted[static_cast<size_t>(count) - 1].token) << "k " << k;
      std::sort(out.begin(), out.begin() + count, more_likely);
      for (size_t i = 0; i < static_cast<size_t>(count); ++i) ASSERT_EQ(out[i].token, sorted[i].token) << "k " << k << ", place " << i;
    }
  }
}

TEST(LogitRow, PeakSeesWhatIsNotFiniteAnywhere) {
  for (const int64_t n : kSizes)
    for (const float strange : {NAN, INFINITY, -INFINITY})
      for (const int64_t at : {int64_t{0}, n / 2, n - 1}) {
        std::vector<float> logits(static_cast<size_t>(n), -3e38F);
        EXPECT_TRUE(find_peak(logits.data(), n).finite);
        logits[static_cast<size_t>(at)] = strange;
        EXPECT_FALSE(find_peak(logits.data(), n).finite) << strange << " at " << at << " of " << n;
      }
}

// What is kept is told by the least token kept. Rounding may decide for a token at the very edge, so two bounds enclose the result;
// they are nearly always the same token.
TEST(LogitFilter, KeepsWhatAFullSortKeeps) {
  int exact = 0;
  constexpr uint32_t kRows = 2000;
  for (uint32_t seed = 0; seed < kRows; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const int64_t n = kSizes[seed % std::size(kSizes)];
    const std::vector<float> logits = random_row(random, n);
    ops::SamplingRow row{.temperature = static_cast<float>(random.integer(1, 30)) / 10};
    if (random.integer(0, 1) == 0) row.top_k = static_cast<int32_t>(random.integer(1, random.integer(0, 1) == 0 ? 60 : n + 3));
    if (random.integer(0, 1) == 0) row.top_p = static_cast<float>(random.integer(0, 999)) / 1000;
    if (random.integer(0, 2) == 0) row.min_p = static_cast<float>(random.integer(1, 1000)) / 1000;

    std::vector<Candidate> candidates(static_cast<size_t>(n));
    std::vector<double> masses(kFilterBuckets);
    const float bound = least_kept(logits.data(), n, find_peak(logits.data(), n), row, {candidates.data(), masses.data()});
    float kept = INFINITY;  // the least token that reaches the bound
    for (const float l : logits)
      if (l >= bound && l < kept) kept = l;
    const std::vector<double> plain(logits.begin(), logits.end());
    EXPECT_LE(kept, plain_least(plain, row, {.mass = -1e-6})) << "keeps too few";
    EXPECT_GE(kept, plain_least(plain, row, {.mass = 1e-6})) << "keeps too many";
    exact += kept == plain_least(plain, row, {}) ? 1 : 0;
  }
  EXPECT_GT(exact, kRows * 99 / 100);
}

}  // namespace
}  // namespace baton::cpu::testing
