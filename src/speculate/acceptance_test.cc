#include "speculate/acceptance.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace baton::speculate {
namespace {

using Tokens = std::vector<int32_t>;

TEST(Acceptance, DraftsCountWhileTheyEqualWhatTheTargetDraws) {
  EXPECT_EQ(count_of(Tokens{}, Tokens{7}), 1);
  EXPECT_EQ(count_of(Tokens{7, 8, 9}, Tokens{7, 8, 9, 10}), 4);
  EXPECT_EQ(count_of(Tokens{7, 8, 9}, Tokens{6, 8, 9, 10}), 1);
  EXPECT_EQ(count_of(Tokens{7, 8, 9}, Tokens{7, 1, 9, 10}), 2);
}

TEST(Acceptance, NothingCountsBehindADrawThatFailed) {
  EXPECT_EQ(count_of(Tokens{7, 8}, Tokens{-1, 8, 9}), 1);
  EXPECT_EQ(count_of(Tokens{7, -2}, Tokens{7, -2, 9}), 2) << "a draft is no token, and does not make a failure one";
}

// Probabilities in eighths, so that all thresholds lie on a grid of 840 points, the least common multiple of 1 ... 8.
constexpr int kGrid = 840;

std::vector<float> eighths(std::mt19937& random, size_t tokens) {
  std::vector<float> p(tokens, 0.0F);
  for (int i = 0; i < 8; ++i) p[random() % tokens] += 0.125F;
  return p;
}

// What comes out, over all drafts and all outcomes of both uniforms.
std::vector<double> distribution(const std::vector<float>& p, const Proposal& q) {
  std::vector<double> out(p.size(), 0.0);
  for (size_t i = 0; i < q.tokens.size(); ++i) {
    if (q.probabilities[i] == 0) continue;
    int accepted = 0;
    for (int a = 0; a < kGrid; ++a) accepted += judge(p, q, q.tokens[i], (a + 0.5) / kGrid, 0.5).accepted ? 1 : 0;
    const double kept = double{q.probabilities[i]} * accepted / kGrid;
    out[static_cast<size_t>(q.tokens[i])] += kept;
    if (accepted == kGrid) continue;
    for (int r = 0; r < kGrid; ++r) {
      const Verdict v = judge(p, q, q.tokens[i], (kGrid - 0.5) / kGrid, (r + 0.5) / kGrid);
      EXPECT_FALSE(v.accepted);
      out[static_cast<size_t>(v.token)] += (double{q.probabilities[i]} - kept) / kGrid;
    }
  }
  return out;
}

TEST(Residual, IsExactlyTheTargetByEnumeration) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const size_t tokens = 1 + random() % 7;
    const std::vector<float> p = eighths(random, tokens);
    // The proposal knows some of the tokens only.
    Tokens candidates(tokens);
    for (size_t i = 0; i < tokens; ++i) candidates[i] = static_cast<int32_t>(i);
    std::shuffle(candidates.begin(), candidates.end(), random);
    candidates.resize(1 + random() % tokens);
    const std::vector<float> q = eighths(random, candidates.size());
    const std::vector<double> got = distribution(p, {candidates, q});
    for (size_t t = 0; t < tokens; ++t) ASSERT_NEAR(got[t], p[t], 1e-9) << "round " << round << ", token " << t;
  }
}

TEST(Residual, AHundredThousandDrawsPassAChiSquareTest) {
  constexpr size_t kTokens = 16;
  constexpr int kDraws = 100'000;
  constexpr double kLimit = 60;  // of 15 degrees of freedom; exceeded once in two million times
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  for (const size_t known : {size_t{1}, size_t{5}, kTokens}) {
    std::vector<float> p(kTokens), q(known);
    const auto fill = [&](std::vector<float>& f) {
      float sum = 0;
      for (float& x : f) sum += x = static_cast<float>(0.02 + uniform(random));
      for (float& x : f) x /= sum;
    };
    fill(p);
    fill(q);
    Tokens candidates(known);
    for (size_t i = 0; i < known; ++i) candidates[i] = static_cast<int32_t>(i * 3 % kTokens);
    std::discrete_distribution<size_t> draft(q.begin(), q.end());
    std::vector<int> seen(kTokens, 0);
    for (int i = 0; i < kDraws; ++i)
      ++seen[static_cast<size_t>(judge(p, {candidates, q}, candidates[draft(random)], uniform(random), uniform(random)).token)];
    double chi = 0;
    for (size_t t = 0; t < kTokens; ++t) {
      const double expected = double{p[t]} * kDraws;
      chi += (seen[t] - expected) * (seen[t] - expected) / expected;
    }
    EXPECT_LT(chi, kLimit) << known << " candidates";
  }
}

TEST(Residual, WhereBothAreTheSameADraftIsAlwaysAccepted) {
  const std::vector<float> p = {0.25F, 0.5F, 0.25F};
  const Tokens all = {0, 1, 2};
  for (const int32_t draft : all) EXPECT_TRUE(judge(p, {all, p}, draft, 0.999999, 0).accepted);
}

TEST(Residual, WhatTheTargetCannotDrawNeverComes) {
  const std::vector<float> p = {0.0F, 1.0F, 0.0F};
  const Tokens all = {0, 1, 2};
  const std::vector<float> q = {0.5F, 0.25F, 0.25F};
  for (const double u : {0.0, 0.5, 0.999999}) EXPECT_EQ(judge(p, {all, q}, 0, u, u).token, 1);
}

}  // namespace
}  // namespace baton::speculate
