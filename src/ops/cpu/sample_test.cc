#include <cstring>
#include <set>

#include "base/random.h"
#include "ops/cpu/sample_test_support.h"
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

// What a draw was before it learned to skip, sort less and share: the oracle for rows with temperature, top_p and seed alone, bit for bit.
int32_t plain_draw(const std::vector<float>& logits, const ops::SamplingRow& row) {
  std::vector<float> sorted = logits;
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const auto mass = [&](float logit) { return std::exp((logit - sorted[0]) / row.temperature); };
  double total = 0;
  for (const float l : sorted) total += mass(l);
  double kept = 0;
  size_t edge = 0;
  for (; edge + 1 < sorted.size(); ++edge)
    if (kept += mass(sorted[edge]); row.top_p < 1 && kept >= row.top_p * total) break;
  int32_t best = -1;
  float best_value = 0;
  for (int32_t i = 0; i < static_cast<int32_t>(logits.size()); ++i) {
    const float logit = logits[static_cast<size_t>(i)];
    if (logit < sorted[edge]) continue;
    const auto c = static_cast<uint32_t>(i);
    const float u = unit_interval(philox(row.seed, {c >> 2U, static_cast<uint32_t>(row.position), 0, 0})[c & 3U]);
    const float value = logit / row.temperature - std::log(-std::log(u));
    if (best < 0 || value > best_value) {
      best = i;
      best_value = value;
    }
  }
  return best;
}

TEST(Sample, DrawsAreThoseOfThePlainForm) {
  OpRunner runner(detect_isa());
  for (uint32_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    std::vector<float> logits = random.normal(random.integer(1, 3000), random.integer(0, 1) == 0 ? 1 : 8);
    if (random.integer(0, 1) == 0)
      for (float& l : logits) l = std::round(l) + (1 << 22);  // so large that noise is rounded to steps, and columns tie
    const ops::SamplingRow row{.temperature = static_cast<float>(random.integer(1, 200)) / 100,
                               .top_p = random.integer(0, 1) == 0 ? 1 : static_cast<float>(random.integer(1, 99)) / 100,
                               .seed = seed * 77777777777ULL,
                               .position = static_cast<int32_t>(seed)};
    EXPECT_EQ(sample(runner, logits, {row})[0], plain_draw(logits, row));
  }
}

// Frequencies of 20,000 draws against the exact distribution, by a chi-square bound that random data exceeds once in a million.
void expect_softmax(std::vector<float> logits, ops::SamplingRow row, const std::vector<bool>& kept) {
  OpRunner runner(detect_isa());
  double total = 0;
  for (size_t i = 0; i < logits.size(); ++i) total += kept[i] ? std::exp(logits[i] / row.temperature) : 0;
  std::vector<int> counts(logits.size());
  constexpr int kDraws = 20000;
  for (row.position = 0; row.position < kDraws; ++row.position) ++counts[static_cast<size_t>(sample(runner, logits, {row})[0])];
  double chi = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!kept[i]) {
      EXPECT_EQ(counts[i], 0) << "token " << i << " is filtered out";
      continue;
    }
    const double expected = std::exp(logits[i] / row.temperature) / total * kDraws;
    chi += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  EXPECT_LT(chi, 40) << "top_k " << row.top_k << ", top_p " << row.top_p << ", min_p " << row.min_p;
}

TEST(Sample, DrawsFollowTheFilteredSoftmax) {
  // Probabilities: 0.52, 0.28, 0.15, 0.043, 0.012, 0.0035.
  const std::vector<float> logits = {2.0F, 1.5F, 1.0F, 0.0F, -1.0F, -2.0F};
  const float t = 0.8F;
  expect_softmax(logits, {.temperature = t, .seed = 42}, {true, true, true, true, true, true});
  expect_softmax(logits, {.temperature = t, .top_p = 0.8F, .seed = 42}, {true, true, true, false, false, false});
  expect_softmax(logits, {.temperature = t, .seed = 43, .top_k = 4}, {true, true, true, true, false, false});
  expect_softmax(logits, {.temperature = t, .seed = 44, .top_k = 1}, {true, false, false, false, false, false});
  expect_softmax(logits, {.temperature = t, .seed = 45, .top_k = 100}, {true, true, true, true, true, true});
  expect_softmax(logits, {.temperature = t, .seed = 46, .min_p = 0.2F}, {true, true, true, false, false, false});
  expect_softmax(logits, {.temperature = t, .seed = 47, .min_p = 1}, {true, false, false, false, false, false});
  // Of the three most likely the first two have 0.84; without top_k they would have 0.79.
  expect_softmax(logits, {.temperature = t, .top_p = 0.8F, .seed = 48, .top_k = 3}, {true, true, false, false, false, false});
  expect_softmax(logits, {.temperature = t, .top_p = 0.99F, .seed = 49, .top_k = 5, .min_p = 0.05F},
                 {true, true, true, true, false, false});
  // Ties at the edge stay together.
  expect_softmax({0, 1, 0, 2, 0}, {.temperature = 1, .seed = 50, .top_k = 3}, {true, true, true, true, true});
  expect_softmax({1, 1, 1, 0, 0}, {.temperature = 1, .top_p = 0.1F, .seed = 51}, {true, true, true, false, false});
}

TEST(Sample, BansMasksAndBiasesDecideWhatMayBeDrawn) {
  OpRunner runner(detect_isa());
  std::vector<float> logits = Random(3).normal(100);
  logits[7] = 50;
  std::vector<int32_t> banned = {7};
  std::vector<int32_t> all(100);
  for (int32_t i = 0; i < 100; ++i) all[static_cast<size_t>(i)] = i;
  std::vector<uint32_t> one_bit = {0, 0, 0, 0xFFFFFFF8};  // token 99 and bits beyond the vocabulary
  std::vector<uint32_t> none = {0, 0, 0, 0xFFFFFFF0};
  one_bit[3] &= ~0x7U;
  const std::vector<ops::LogitBias> away = {{7, -100}};
  const std::vector<ops::LogitBias> towards = {{42, 100}};
  const std::vector<ops::LogitBias> never = {{7, -INFINITY}};
  const std::vector<ops::LogitBias> always = {{42, INFINITY}, {43, INFINITY}, {7, INFINITY}};
  for (const float temperature : {0.0F, 1.0F}) {
    const auto id = [&](auto set) {
      ops::SamplingRow row{.temperature = temperature, .seed = 5};
      set(row);
      return sample(runner, logits, {row})[0];
    };
    EXPECT_EQ(id([](auto&) {}), 7);
    EXPECT_NE(id([&](auto& r) { r.banned = banned.data(), r.banned_count = 1; }), 7);
    EXPECT_EQ(id([&](auto& r) { r.banned = all.data(), r.banned_count = 99; }), 99);
    EXPECT_EQ(id([&](auto& r) { r.banned = all.data(), r.banned_count = 100; }), ops::kNothingAllowed);
    EXPECT_EQ(id([&](auto& r) { r.allowed = one_bit.data(); }), 99);
    EXPECT_EQ(id([&](auto& r) { r.allowed = none.data(); }), ops::kNothingAllowed);
    EXPECT_EQ(id([&](auto& r) { r.allowed = one_bit.data(), r.banned = all.data() + 99, r.banned_count = 1; }), ops::kNothingAllowed);
    EXPECT_NE(id([&](auto& r) { r.bias = away.data(), r.bias_count = 1; }), 7);
    EXPECT_EQ(id([&](auto& r) { r.bias = towards.data(), r.bias_count = 1; }), 42);
    EXPECT_NE(id([&](auto& r) { r.bias = never.data(), r.bias_count = 1; }), 7);
    // A ban wins over any bias, and of several certain tokens greedy takes the first, a draw each of them.
    const auto certain = [&](int32_t position) {
      return id(
          [&](auto& r) { r.bias = always.data(), r.bias_count = 3, r.banned = banned.data(), r.banned_count = 1, r.position = position; });
    };
    std::set<int32_t> seen;
    for (int32_t i = 0; i < 50; ++i) seen.insert(certain(i));
    EXPECT_EQ(seen, temperature == 0 ? std::set<int32_t>({42}) : std::set<int32_t>({42, 43}));
  }
}

TEST(Sample, PenaltiesFollowTheirFormulas) {
  OpRunner runner(detect_isa());
  const auto greedy = [&](std::vector<float> logits, std::vector<ops::SeenToken> seen, float repetition, float frequency, float presence) {
    return sample(runner, logits,
                  {{.repetition_penalty = repetition,
                    .frequency_penalty = frequency,
                    .presence_penalty = presence,
                    .seen = seen.data(),
                    .seen_count = static_cast<int32_t>(seen.size())}})[0];
  };
  EXPECT_EQ(greedy({4, 3}, {{0, 1, 0}}, 1.3F, 0, 0), 0);
  EXPECT_EQ(greedy({4, 3}, {{0, 1, 0}}, 1.4F, 0, 0), 1);    // 4 / 1.4 < 3, also of a token of the prompt alone
  EXPECT_EQ(greedy({-2, -3}, {{0, 0, 1}}, 1.4F, 0, 0), 0);  // -2 * 1.4 > -3
  EXPECT_EQ(greedy({-2, -3}, {{0, 0, 1}}, 1.6F, 0, 0), 1);
  EXPECT_EQ(greedy({-3, -2}, {{0, 0, 1}}, 0.5F, 0, 0), 0);  // below 1 it rewards
  EXPECT_EQ(greedy({4, 3}, {{0, 1, 0}}, 1, 9, 9), 0);       // the other two leave tokens of the prompt alone
  EXPECT_EQ(greedy({4, 3}, {{0, 1, 2}}, 1, 0.4F, 0), 0);
  EXPECT_EQ(greedy({4, 3}, {{0, 1, 3}}, 1, 0.4F, 0), 1);
  EXPECT_EQ(greedy({4, 3}, {{0, 0, 9}}, 1, 0, 0.9F), 0);  // presence does not count
  EXPECT_EQ(greedy({4, 3}, {{0, 0, 1}}, 1, 0, 1.1F), 1);
  EXPECT_EQ(greedy({4, 3}, {{1, 0, 1}}, 1, 0, -1.1F), 1);
}

TEST(Sample, VeryLowTemperaturesAndFarLogitsDrawTheLargest) {
  OpRunner runner(detect_isa());
  std::vector<float> logits = {1, -3e38F, 5, 4, 3e38F, 1e38F};
  std::vector<float> below = {-4, -3, -5, -3.5F, -4, -4};
  for (const float temperature : {1e-44F, 1e-30F, 1e-3F})
    for (int32_t i = 0; i < 50; ++i) {
      EXPECT_EQ(sample(runner, logits, {{.temperature = temperature, .seed = 9, .position = i}})[0], 4);
      EXPECT_EQ(sample(runner, below, {{.temperature = temperature, .top_p = 0.9F, .seed = 9, .position = i, .top_k = 4}})[0], 1);
    }
}

// A row with any combination of options, and the arrays that it points to.
struct RandomRow {
  ops::SamplingRow row;
  std::vector<float> logits;
  std::vector<ops::SeenToken> seen;
  std::vector<ops::LogitBias> bias;
  std::vector<int32_t> banned;
  std::vector<uint32_t> allowed;
  bool exact;  // logits lie on a grid that the edits do not leave: nothing rounds, and there are many ties

  RandomRow(Random& random, int64_t n) {
    const auto coin = [&] { return random.integer(0, 1) == 1; };
    const auto quarters = [&](int64_t low, int64_t high) { return static_cast<float>(random.integer(low, high)) / 4; };
    logits = random.normal(n, coin() ? 1 : 4);
    exact = coin();
    if (exact)
      for (float& l : logits) l = std::round(l * 8) / 8;
    row.temperature = coin() ? quarters(1, 8) : 0;
    row.seed = static_cast<uint64_t>(random.integer(0, 1 << 30));
    row.position = static_cast<int32_t>(random.integer(0, 1 << 20));
    if (coin()) row.top_p = quarters(1, 4);
    if (coin()) row.top_k = static_cast<int32_t>(random.integer(1, n + 2));
    if (coin()) row.min_p = quarters(0, 4);
    if (coin()) row.repetition_penalty = coin() ? 2 : 0.5F;
    if (coin()) row.frequency_penalty = quarters(-8, 8);
    if (coin()) row.presence_penalty = quarters(-8, 8);
    row.logprobs = static_cast<int32_t>(random.integer(-1, coin() ? 5 : n + 2));
    for (int32_t t = 0; t < n; ++t) {
      if (random.integer(0, 3) == 0)
        seen.push_back({t, static_cast<int32_t>(random.integer(0, 1)), static_cast<int32_t>(random.integer(0, 4))});
      if (random.integer(0, 3) == 0) bias.push_back({t, quarters(-20, 20)});
      if (random.integer(0, 3) == 0) banned.push_back(t);
    }
    for (int64_t w = 0; w * 32 < n; ++w)
      allowed.push_back(coin() ? ~0U : static_cast<uint32_t>(random.integer(0, 0xFFFFFFFF) | random.integer(0, 0xFFFFFFFF)));
    if (coin()) row.seen = seen.data(), row.seen_count = static_cast<int32_t>(seen.size());
    if (coin()) row.bias = bias.data(), row.bias_count = static_cast<int32_t>(bias.size());
    if (coin()) row.banned = banned.data(), row.banned_count = static_cast<int32_t>(banned.size());
    if (coin()) row.allowed = allowed.data();
  }
};

struct Drawn {
  std::vector<int32_t> ids;
  std::vector<float> logprobs;
  std::vector<ops::TokenLogprob> top;
  std::vector<float> probabilities;
};

Drawn run_rows(OpRunner& runner, std::vector<float>& logits, const std::vector<ops::SamplingRow>& rows, int32_t top_stride) {
  const size_t m = rows.size();
  Drawn out{std::vector<int32_t>(m, -9),
            std::vector<float>(m, -9),
            {m * static_cast<size_t>(top_stride), ops::TokenLogprob{-9, -9}},
            std::vector<float>(logits.size(), -9)};
  runner.run(runner.ops().sample, ops::SampleParams{view(logits, static_cast<int64_t>(m)), rows.data(), out.ids.data(), out.logprobs.data(),
                                                    out.top.data(), top_stride, out.probabilities.data()});
  return out;
}

// Steps 1 and 2 by their formulas.
std::vector<double> plain_edits(const RandomRow& r) {
  std::vector<double> l(r.logits.begin(), r.logits.end());
  const auto at = [&](int32_t token) -> double& { return l[static_cast<size_t>(token)]; };
  for (int32_t i = 0; i < r.row.banned_count; ++i) at(r.banned[static_cast<size_t>(i)]) -= INFINITY;
  for (size_t t = 0; r.row.allowed != nullptr && t < l.size(); ++t)
    if ((r.allowed[t / 32] >> (t % 32) & 1U) == 0) l[t] -= INFINITY;
  for (int32_t i = 0; i < r.row.bias_count; ++i) at(r.bias[static_cast<size_t>(i)].token) += r.bias[static_cast<size_t>(i)].bias;
  for (int32_t i = 0; i < r.row.seen_count; ++i) {
    const ops::SeenToken& s = r.seen[static_cast<size_t>(i)];
    double& x = at(s.token);
    x = x > 0 ? x / r.row.repetition_penalty : x * r.row.repetition_penalty;
    if (s.generated > 0) x -= r.row.frequency_penalty * s.generated + r.row.presence_penalty;
  }
  return l;
}

void expect_plain(const RandomRow& r, int32_t id) {
  const std::vector<double> l = plain_edits(r);
  const ops::SamplingRow& row = r.row;
  const double largest = *std::max_element(l.begin(), l.end());
  const double rounding = r.exact ? 0 : 1e-5;
  if (largest == -INFINITY) {
    EXPECT_EQ(id, ops::kNothingAllowed);
    return;
  }
  ASSERT_GE(id, 0);
  const double drawn = l[static_cast<size_t>(id)];
  if (row.temperature == 0) {
    EXPECT_GE(drawn, largest - rounding);
    return;
  }
  EXPECT_GE(drawn, plain_least(l, row, {1e-5, rounding}) - rounding) << "filtered out";
  const double certain = plain_least(l, row, {-1e-5, -rounding}) + rounding;  // what is kept whatever rounding does
  const auto value = [&](size_t i) {
    const auto c = static_cast<uint32_t>(i);
    const PhiloxBlock block = philox(row.seed, {c >> 2U, static_cast<uint32_t>(row.position), 0, 0});
    return l[i] / row.temperature - std::log(-std::log(double{unit_interval(block[c & 3U])}));
  };
  for (size_t i = 0; i < l.size(); ++i)
    EXPECT_TRUE(l[i] < certain || value(i) <= value(static_cast<size_t>(id)) + 1e-4) << "token " << i << " is ahead of " << id;
}

void expect_plain_logprobs(const RandomRow& r, int32_t id, float logprob, const ops::TokenLogprob* top) {
  double sum = 0;
  for (const float l : r.logits) sum += std::exp(double{l});
  EXPECT_NEAR(logprob, r.logits[static_cast<size_t>(id)] - std::log(sum), 1e-5);
  std::vector<int32_t> order(r.logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  const auto logit = [&](int32_t token) { return r.logits[static_cast<size_t>(token)]; };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logit(a) > logit(b); });
  for (size_t i = 0; i < static_cast<size_t>(r.row.logprobs); ++i) {
    ASSERT_EQ(top[i].token, i < order.size() ? order[i] : -1);
    if (i < order.size()) {
      EXPECT_NEAR(top[i].logprob, logit(order[i]) - std::log(sum), 1e-5);
    } else {
      EXPECT_EQ(top[i].logprob, -INFINITY);
    }
  }
}

// What the row is drawn from: none of what is filtered out, and the softmax of the rest.
void expect_plain_probabilities(const RandomRow& r, int32_t id, const float* p) {
  const size_t n = r.logits.size();
  if (id < 0 || r.row.temperature == 0) {
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(p[i], -9) << "written where nothing is drawn with a temperature";
    return;
  }
  const std::vector<double> l = plain_edits(r);
  const double rounding = r.exact ? 0 : 1e-5;
  const double possible = plain_least(l, r.row, {1e-5, rounding}) - rounding;
  const double certain = plain_least(l, r.row, {-1e-5, -rounding}) + rounding;
  double sum = 0;
  for (size_t i = 0; i < n; ++i) {
    sum += p[i];
    const double expected = p[id] * std::exp((l[i] - l[static_cast<size_t>(id)]) / r.row.temperature);
    if (l[i] < possible || l[i] == -INFINITY) {
      ASSERT_EQ(p[i], 0) << "token " << i;
    } else if (l[i] >= certain) {
      ASSERT_NEAR(p[i], expected, 1e-4 * expected + 1e-30) << "token " << i;
    }
  }
  EXPECT_NEAR(sum, 1, 1e-5);
}

// Any combination of options, against a naive form in double; and the same bits alone, in a batch, and on any number of threads.
TEST(Sample, RandomRowsAreThoseOfTheNaiveForm) {
  OpRunner one(detect_isa(), 1);
  OpRunner two(detect_isa(), 2);
  OpRunner three(detect_isa(), 3);
  for (uint32_t seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const int64_t n = random.integer(1, random.integer(0, 1) == 0 ? 12 : 700);
    const auto top_stride = static_cast<int32_t>(n + 6);  // more than any row asks for
    std::vector<RandomRow> rows;
    for (int64_t m = random.integer(1, 16); m > 0; --m) rows.emplace_back(random, n);
    std::vector<ops::SamplingRow> sampling;
    std::vector<float> logits;
    for (const RandomRow& r : rows) {
      sampling.push_back(r.row);
      logits.insert(logits.end(), r.logits.begin(), r.logits.end());
    }
    const std::vector<float> before = logits;
    const Drawn batch = run_rows(two, logits, sampling, top_stride);
    EXPECT_EQ(logits, before) << "the logits were written to";
    for (size_t i = 0; i < rows.size(); ++i) {
      SCOPED_TRACE("row " + std::to_string(i));
      const ops::TokenLogprob* const top = &batch.top[i * static_cast<size_t>(top_stride)];
      expect_plain(rows[i], batch.ids[i]);
      const float* const p = batch.probabilities.data() + i * static_cast<size_t>(n);
      expect_plain_probabilities(rows[i], batch.ids[i], p);
      if (batch.ids[i] >= 0 && rows[i].row.logprobs >= 0) expect_plain_logprobs(rows[i], batch.ids[i], batch.logprobs[i], top);
      for (int64_t k = std::max(rows[i].row.logprobs, 0); k < top_stride; ++k) ASSERT_EQ(top[k].token, -9) << "written beyond logprobs";
      OpRunner& runner = i % 2 == 0 ? one : three;
      const Drawn alone = run_rows(runner, rows[i].logits, {rows[i].row}, top_stride);
      EXPECT_EQ(alone.ids[0], batch.ids[i]);
      EXPECT_EQ(std::memcmp(&alone.logprobs[0], &batch.logprobs[i], sizeof(float)), 0);
      EXPECT_EQ(std::memcmp(alone.top.data(), top, alone.top.size() * sizeof(ops::TokenLogprob)), 0);
      EXPECT_TRUE(std::equal(alone.probabilities.begin(), alone.probabilities.end(), p));
    }
  }
}

TEST(Sample, LogprobsAreOptionalAndMayCoverTheVocabulary) {
  OpRunner runner(detect_isa());
  std::vector<float> logits = {0, std::log(2.0F), 0, std::log(4.0F)};
  ops::SamplingRow row{.logprobs = 0};
  float logprob = 0;
  int32_t id = -1;
  runner.run(runner.ops().sample, ops::SampleParams{.logits = view(logits, 1), .rows = &row, .ids = &id, .logprobs = &logprob});
  EXPECT_EQ(id, 3);
  EXPECT_NEAR(logprob, std::log(0.5), 1e-6);
  row.logprobs = 4;
  const Drawn all = run_rows(runner, logits, {row}, 4);
  const int32_t order[] = {3, 1, 0, 2};
  double sum = 0;
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(all.top[i].token, order[i]);
    sum += std::exp(all.top[i].logprob);
  }
  EXPECT_NEAR(sum, 1, 1e-6);
}

}  // namespace
}  // namespace baton::cpu::testing
