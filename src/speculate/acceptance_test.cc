#include "speculate/acceptance.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/test_seed.h"

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
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
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
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
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

// Two places whose targets and proposals depend on the token before, over all drafts and all outcomes of four uniforms. Probabilities are
// quarters, so that all thresholds lie on a grid of 12 points.
TEST(Residual, BlocksAreExactlyTheTargetByEnumeration) {
  constexpr int kCells = 12;
  constexpr int32_t kTokens = 3;
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
  std::mt19937 random(seed);
  const Tokens all = {0, 1, 2};
  using Rows = std::vector<std::vector<float>>;  // behind nothing, and behind each first token
  const auto quarters = [&random](Rows& rows) {
    rows.assign(1 + kTokens, std::vector<float>(kTokens, 0.0F));
    for (auto& row : rows)
      for (int i = 0; i < 4; ++i) row[random() % kTokens] += 0.25F;
  };
  const auto chances = [](int cell) { return Chances{(cell / kCells + 0.5) / kCells, (cell % kCells + 0.5) / kCells}; };
  for (int round = 0; round < 6; ++round) {
    Rows target, proposal;
    quarters(target);
    quarters(proposal);
    double came[kTokens][kTokens] = {};
    for (const int32_t a : all)
      for (const int32_t b : all) {
        const auto behind_a = static_cast<size_t>(1 + a);
        const double q = double{proposal[0][static_cast<size_t>(a)]} * proposal[behind_a][static_cast<size_t>(b)];
        if (q == 0) continue;
        const Tokens drafts = {a, b};
        const Proposal proposals[] = {{all, proposal[0]}, {all, proposal[behind_a]}};
        std::vector<float> targets = target[0];
        targets.insert(targets.end(), target[behind_a].begin(), target[behind_a].end());
        for (int x = 0; x < kCells * kCells; ++x)
          for (int y = 0; y < kCells * kCells; ++y) {
            Tokens drawn = {9, 9, 9};
            const Chances both[] = {chances(x), chances(y)};
            judge_block(drafts, proposals, targets, both, drawn);
            ASSERT_EQ(drawn[2], 9) << "behind the last draft the target draws by itself";
            const double share = q / (kCells * kCells) / (kCells * kCells);
            if (drawn[0] == a) {
              came[a][drawn[1]] += share;
            } else {  // the next token is the target's own, from what is behind this one
              ASSERT_EQ(drawn[1], 9) << "judged behind a draft that was not accepted";
              for (const int32_t next : all)
                came[drawn[0]][next] += share * target[static_cast<size_t>(1 + drawn[0])][static_cast<size_t>(next)];
            }
          }
      }
    for (const int32_t a : all)
      for (const int32_t b : all)
        ASSERT_NEAR(came[a][b], double{target[0][static_cast<size_t>(a)]} * target[static_cast<size_t>(1 + a)][static_cast<size_t>(b)],
                    1e-9)
            << "round " << round << ", tokens " << a << ", " << b;
  }
}

TEST(Residual, NothingIsJudgedWhereNothingCouldBeDrawn) {
  const Tokens all = {0, 1};
  const std::vector<float> q = {0, 1}, p = {0.5F, 0.5F, 1, 0};
  const Proposal proposals[] = {{all, q}, {all, q}};
  const Chances never[] = {{0.9, 0}, {0.9, 0}}, always[] = {{0.1, 0}, {0.1, 0}};
  Tokens drawn = {-1, 0, 0};
  judge_block(Tokens{1, 1}, proposals, p, always, drawn);
  EXPECT_EQ(drawn, (Tokens{-1, 0, 0}));
  drawn = {0, -2, 0};
  judge_block(Tokens{1, 1}, proposals, p, always, drawn);
  EXPECT_EQ(drawn, (Tokens{1, -2, 0}));
  drawn = {1, 1, 1};
  judge_block(Tokens{1, 1}, proposals, p, never, drawn);
  EXPECT_EQ(drawn, (Tokens{0, 1, 1}));
}

TEST(Residual, ChancesAreUniformAndOfTheirPlaceAlone) {
  double accept = 0, redraw = 0, both = 0;
  constexpr int kPlaces = 20000;
  for (int32_t i = 0; i < kPlaces; ++i) {
    const Chances c = chances_of(7, i);
    ASSERT_TRUE(c.accept >= 0 && c.accept < 1 && c.redraw >= 0 && c.redraw < 1);
    accept += c.accept / kPlaces;
    redraw += c.redraw / kPlaces;
    both += c.accept * c.redraw / kPlaces;
  }
  EXPECT_NEAR(accept, 0.5, 0.01);  // five deviations
  EXPECT_NEAR(redraw, 0.5, 0.01);
  EXPECT_NEAR(both, 0.25, 0.01);
  EXPECT_NE(chances_of(7, 1).accept, chances_of(8, 1).accept);
}

}  // namespace
}  // namespace baton::speculate
