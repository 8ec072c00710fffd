#include <set>

#include "ops/cpu/test_support.h"

namespace baton::cpu::testing {
namespace {

std::vector<int32_t> sample(OpRunner& runner, std::vector<float>& logits, const std::vector<ops::SamplingRow>& rows) {
  std::vector<int32_t> ids(rows.size(), -1);
  runner.run(runner.ops().sample, ops::SampleParams{view(logits, static_cast<int64_t>(rows.size())), rows.data(), ids.data()});
  return ids;
}

TEST(Sample, ZeroTemperatureTakesTheLargestAndTiesTheLowerId) {
  OpRunner runner(detect_isa());
  std::vector<float> logits = {1, 3, 3, 2, -1, -1, -2, -1};
  EXPECT_EQ(sample(runner, logits, {{}, {}}), (std::vector<int32_t>{1, 0}));
}

TEST(Sample, RefusesRowsThatAreNotNumbers) {
  OpRunner runner(detect_isa());
  std::vector<float> logits = {1, NAN, 3, 4, 1, 2, 3, 4};
  std::vector<float> infinite = {1, INFINITY, 3, 4};
  EXPECT_EQ(sample(runner, infinite, {{}}), (std::vector<int32_t>{-1}));
  EXPECT_EQ(sample(runner, logits, {{}, {}}), (std::vector<int32_t>{-1, 3}));
  EXPECT_EQ(sample(runner, logits, {{1.0F}, {1.0F}})[0], -1);
}

TEST(Sample, DependsOnSeedAndPositionButNotOnTheBatch) {
  OpRunner runner(detect_isa());
  Random random(1);
  const int64_t v = 500;
  std::vector<float> one = random.normal(v);
  std::vector<float> many;
  std::vector<ops::SamplingRow> rows;
  std::vector<int32_t> alone;
  for (int i = 0; i < 50; ++i) {
    many.insert(many.end(), one.begin(), one.end());
    rows.push_back({1.0F, 0.9F, static_cast<uint64_t>(i % 5), i / 5});
    alone.push_back(sample(runner, one, {rows.back()})[0]);
  }
  EXPECT_EQ(sample(runner, many, rows), alone);
  EXPECT_GT(std::set<int32_t>(alone.begin(), alone.end()).size(), 10U);
}

// Frequencies of 20,000 draws against the exact distribution, by a chi-square bound that random data exceeds once in a million.
TEST(Sample, DrawsFollowTheFilteredSoftmax) {
  OpRunner runner(detect_isa());
  std::vector<float> logits = {2.0F, 1.5F, 1.0F, 0.0F, -1.0F, -2.0F};
  for (const float top_p : {1.0F, 0.8F}) {
    const float temperature = 0.8F;
    std::vector<double> p;
    double total = 0;
    for (const float l : logits) total += std::exp(l / temperature);
    double kept = 0;
    double mass = 0;
    for (const float l : logits) {  // already in descending order
      p.push_back(mass < top_p ? std::exp(l / temperature) / total : 0.0);
      mass += std::exp(l / temperature) / total;
      kept += p.back();
    }
    std::vector<int> counts(logits.size());
    constexpr int kDraws = 20000;
    for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(sample(runner, logits, {{temperature, top_p, 42, i}})[0])];
    double chi = 0;
    for (size_t i = 0; i < p.size(); ++i) {
      const double expected = p[i] / kept * kDraws;
      if (expected == 0) {
        EXPECT_EQ(counts[i], 0) << "token " << i << " lies outside top_p";
      } else {
        chi += (counts[i] - expected) * (counts[i] - expected) / expected;
      }
    }
    EXPECT_LT(chi, 40) << "top_p " << top_p;
  }
}

}  // namespace
}  // namespace baton::cpu::testing
