// Drafts that are judged by what they were drawn from (--speculative-sampled-proposals): the text is another one than without drafts, of
// the same distribution, and depends on the request and its seed alone.
#include <cstdlib>
#include <map>

#include "base/random.h"
#include "base/test_seed.h"
#include "engine/serial_executor.h"
#include "engine/world.h"

namespace baton::testing {
namespace {

constexpr const char* kFolder = "mtp";

LocalOptions options(int32_t running) {
  LocalOptions o = small_options(running);
  o.snapshots = 2 * running + 8;
  return o;
}

LocalOptions sampled(LocalOptions o) {
  o.speculation = {.algorithm = "DFLASH", .draft_model = BATON_TEST_DATA "/drafters/dflash2", .sampled_proposals = true};
  return o;
}

int64_t vocabulary() {
  static const int64_t v = model::Checkpoint::open(golden_dir(kFolder))->config().vocab_size;
  return v;
}

std::vector<RequestSpec> with_temperature(size_t count, uint32_t seed) {
  std::vector<RequestSpec> all = make_specs(count, seed, vocabulary());
  for (size_t i = 0; i < all.size(); ++i) {
    sched::Sampling& s = all[i].sampling;
    s.temperature = 0.5F + static_cast<float>(i % 3) * 0.5F;
    if (i % 5 == 1) s.top_k = 20;
    if (i % 5 == 2) s.min_p = 0.02F;
  }
  return all;
}

TEST(SampledProposals, ATextDependsOnItsRequestAlone) {
  std::vector<RequestSpec> all = with_temperature(8, 31);
  for (size_t i = 0; i < all.size(); i += 4) all[i].max_tokens = 64 * 3 - std::ssize(all[i].prompt) % 64 + 1;  // ends at a page's end
  for (const int32_t snapshots : {7, 0}) {  // too few for all when they are asked again, and none
    std::vector<Answer> wanted;
    {
      LocalOptions o = sampled(options(1));
      o.snapshots = snapshots;
      World w(o, kFolder);
      w.constrain = true;
      for (RequestSpec s : all) {
        s.cache_prompt = false;
        wanted.push_back(w.ask(s));
      }
      const speculate::Metrics m = w.metrics().speculation;
      EXPECT_GT(m.accepted, 0);
      EXPECT_LT(m.accepted, m.drafted);
    }
    for (const bool plan_ahead : {false, true}) {
      LocalOptions o = sampled(options(plan_ahead ? 8 : 3));
      o.plan_ahead = plan_ahead;
      o.snapshots = snapshots;
      o.prefill_tokens = plan_ahead ? 256 : 100;
      World w(o, kFolder);
      w.constrain = true;
      expect_equal(w.ask_all(all), wanted, "together, cold");
      if (snapshots > 0) expect_equal(w.ask_all(all), wanted, "together, warm");
      if (HasFatalFailure()) return;
    }
  }
}

TEST(SampledProposals, WithoutATemperatureTheTextIsTheOneWithoutDrafts) {
  std::vector<RequestSpec> all = make_specs(9, 32, vocabulary());
  for (RequestSpec& s : all) s.sampling.temperature = 0;
  World without(options(4), kFolder), with(sampled(options(4)), kFolder);
  expect_equal(with.ask_all(all), without.ask_all(all), "greedy");
  EXPECT_GT(with.metrics().speculation.drafted, 0);
}

// Penalties and log-probabilities go by what came of the judging, not by what the target drew by itself: the answer scored as a prompt has
// the same log-probabilities.
TEST(SampledProposals, LogProbabilitiesAreThoseOfTheTokens) {
  World w(sampled(options(4)), kFolder);
  int64_t compared = 0;
  for (const RequestSpec& spec : with_temperature(6, 33)) {
    GatheringSink said(1, true);
    ASSERT_TRUE(w.local->engine().submit(spec, said).ok());
    said.wait();
    RequestSpec scored;
    scored.prompt = spec.prompt;
    scored.prompt.insert(scored.prompt.end(), said.choices()[0].tokens.begin(), said.choices()[0].tokens.end());
    scored.max_tokens = 1;
    scored.cache_prompt = false;
    scored.sampling.prompt_logprobs = 0;
    GatheringSink score(1, false);
    ASSERT_TRUE(w.local->engine().submit(scored, score).ok());
    score.wait();
    const auto& logprobs = said.choices()[0].logprobs;
    for (size_t i = 0; i < logprobs.size(); ++i, ++compared)
      ASSERT_EQ(logprobs[i], score.prompt_logprobs()[spec.prompt.size() + i - 1]) << "token " << i;
  }
  EXPECT_GT(compared, 100);
}

double chi_square(const std::vector<double>& expected, const std::vector<int64_t>& counts, int64_t draws, int& cells) {
  double chi = 0, rest = 0;
  int64_t rest_count = 0;
  cells = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double e = expected[i] * static_cast<double>(draws);
    if (e < 8) {  // too rare for a cell of its own
      rest += e;
      rest_count += counts[i];
      continue;
    }
    chi += (static_cast<double>(counts[i]) - e) * (static_cast<double>(counts[i]) - e) / e;
    ++cells;
  }
  if (rest > 8) {
    chi += (static_cast<double>(rest_count) - rest) * (static_cast<double>(rest_count) - rest) / rest;
    ++cells;
  } else {
    EXPECT_LT(static_cast<double>(rest_count), rest + 8 * std::sqrt(rest + 1)) << "what should hardly ever come came";
  }
  return chi;
}
// Exceeded about once in a million times: mean and variance of chi-square, and more than five deviations.
double limit_of(int cells) { return (cells - 1) + 6.0 * std::sqrt(2.0 * (cells - 1)) + 8; }

// The draws of cycles from given hidden rows, with proposals that have little to do with the target: 10^5 judged draws beside the softmax
// of what the request's options leave, computed here in double.
TEST(SampledProposals, AHundredThousandDrawsOfTheExecutorPassAChiSquareTest) {
  constexpr int64_t kBlocks = 32, kDrafts = 3, kRounds = 1900;
  constexpr int32_t kTopK = 24;
  constexpr float kTemperature = 0.9F;
  const uint32_t start = test_seed();
  const auto checkpoint = model::Checkpoint::open(golden_dir(kFolder));
  cpu::CpuBackend backend({.threads = 2, .isa = cpu::detect_isa()});
  model::ModelOptions o;
  o.numerics.activation = DType::kF32;
  o.cache = {};
  o.max_rows = o.max_logits_rows = kBlocks * (1 + kDrafts);
  o.max_sequences = kBlocks;
  o.max_pages = 1;
  const auto model = model::Glm5Next::load(*checkpoint, backend, o);
  ASSERT_TRUE(model.ok());
  const int64_t v = vocabulary(), d = (*model)->config().hidden_size;

  std::mt19937 random(start);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> hidden(static_cast<size_t>((1 + kDrafts) * d));
  for (float& x : hidden) x = normal(random);
  std::vector<float> logits(static_cast<size_t>((1 + kDrafts) * v));
  (*model)->head({hidden.data(), DType::kF32, 1 + kDrafts, d, d}, {logits.data(), DType::kF32, 1 + kDrafts, v, v});
  std::vector<std::vector<double>> target;
  std::vector<std::vector<int32_t>> candidates;  // some that may be drawn, and some that may not
  std::vector<std::vector<float>> probabilities;
  for (size_t i = 0; i <= kDrafts; ++i) {
    const float* const row = logits.data() + i * static_cast<size_t>(v);
    std::vector<int32_t> order(static_cast<size_t>(v));
    for (size_t t = 0; t < order.size(); ++t) order[t] = static_cast<int32_t>(t);
    std::sort(order.begin(), order.end(), [row](int32_t a, int32_t b) { return row[a] > row[b]; });
    auto& p = target.emplace_back(static_cast<size_t>(v), 0.0);
    double sum = 0;
    for (size_t k = 0; k < kTopK; ++k)
      sum += p[static_cast<size_t>(order[k])] = std::exp((double{row[order[k]]} - row[order[0]]) / kTemperature);
    for (double& x : p) x /= sum;
    candidates.push_back({order[0], order[1], order[3], order[7], order[kTopK + 1], order.back()});
    probabilities.push_back({0.4F, 0.1F, 0.25F, 0.1F, 0.1F, 0.05F});
  }

  auto draws = engine::BlockDraws::create(**model, backend, kBlocks * (1 + kDrafts), v, true);
  ASSERT_TRUE(draws.ok());
  engine::SlotSampling sampling(kBlocks, v);
  engine::SlotConstraints constraints(kBlocks);
  sched::RequestSpec request;
  request.sampling.temperature = kTemperature;
  request.sampling.top_k = kTopK;
  std::vector<std::vector<int64_t>> counts(1 + kDrafts, std::vector<int64_t>(static_cast<size_t>(v), 0));
  std::vector<int64_t> seen(1 + kDrafts, 0);
  engine::CycleResult result;
  for (int64_t round = 0; round < kRounds; ++round) {
    std::vector<std::vector<int32_t>> drafts(kBlocks);
    std::vector<speculate::Proposal> proposals;
    for (size_t i = 0; i < kDrafts; ++i) proposals.push_back({candidates[i], probabilities[i]});
    std::vector<engine::BlockSource> blocks;
    for (int32_t b = 0; b < kBlocks; ++b) {
      request.sampling.seed = uint64_t{start} << 32U | static_cast<uint64_t>(round * kBlocks + b);
      sampling.bind({.slot = b, .choice = 0, .request = 1, .history_begin = 0, .history_count = 0, .prompt = 10, .rows_limit = 500},
                    request, {});
      for (size_t i = 0; i < kDrafts; ++i) {
        std::discrete_distribution<size_t> q(probabilities[i].begin(), probabilities[i].end());
        drafts[static_cast<size_t>(b)].push_back(candidates[i][q(random)]);
      }
      blocks.push_back({.slot = b,
                        .position = 10,
                        .hidden = {hidden.data(), DType::kF32, 1 + kDrafts, d, d},
                        .drafts = drafts[static_cast<size_t>(b)],
                        .proposals = proposals});
    }
    draws->run(blocks, sampling, constraints, result);
    for (size_t b = 0; b < kBlocks; ++b) {
      const int32_t begin = b == 0 ? 0 : result.ends[b - 1];
      for (int32_t i = begin; i < result.ends[b]; ++i) {
        ++seen[static_cast<size_t>(i - begin)];
        ++counts[static_cast<size_t>(i - begin)][static_cast<size_t>(result.tokens[static_cast<size_t>(i)])];
      }
    }
  }
  int64_t judged = 0;
  for (size_t i = 0; i <= kDrafts; ++i) {
    int cells = 0;
    const double chi = chi_square(target[i], counts[i], seen[i], cells);
    EXPECT_LT(chi, limit_of(cells)) << "place " << i << " of a block, " << seen[i] << " draws, " << cells << " cells";
    if (i < kDrafts) judged += seen[i];
  }
  std::printf("%ld judged draws\n", static_cast<long>(judged));
}

// Proposes what a sequence's seed, place and anchor say: no two sequences the same, so that one judged by another's would show.
class Proposing final : public model::Drafter {
 public:
  static constexpr int32_t kCandidates = 3;
  Proposing(const model::DrafterNeeds& needs, std::vector<int32_t> likely) : needs_(needs), likely_(std::move(likely)) {}
  const model::DrafterNeeds& needs() const override { return needs_; }
  int64_t weight_bytes() const override { return 0; }
  int64_t workspace_bytes() const override { return 0; }
  int32_t proposal_tokens() const override { return kCandidates; }
  void commit(const model::CommitInput&) override {}
  void draft(const model::DraftInput& input, int32_t* ids, int64_t stride) override {
    ASSERT_NE(input.proposals, nullptr);
    for (size_t s = 0; s < input.sequences.size(); ++s)
      for (int32_t i = 0; i < input.counts[s]; ++i) {
        const int32_t position = input.sampling[s].position + i;
        const PhiloxBlock r = philox(input.sampling[s].seed, {static_cast<uint32_t>(position), 9, 9, 9});
        const int64_t at = static_cast<int64_t>(s) * stride + i;
        const float q[kCandidates] = {0.125F * static_cast<float>(1 + r[0] % 4), 0.125F * static_cast<float>(1 + r[1] % 3), 0};
        const float last = 1 - q[0] - q[1];
        const float u = unit_interval(r[3]);
        const int32_t drawn = u < q[0] ? 0 : u < q[0] + q[1] ? 1 : 2;
        for (int32_t c = 0; c < kCandidates; ++c) {
          input.proposals->tokens[at * kCandidates + c] = likely_[(r[2] % 2 + static_cast<size_t>(c)) % likely_.size()];
          input.proposals->probabilities[at * kCandidates + c] = c == 2 ? last : q[c];
        }
        ids[at] = input.proposals->tokens[at * kCandidates + drawn];
      }
  }

 private:
  model::DrafterNeeds needs_;
  std::vector<int32_t> likely_;
};

// From requests to tokens: pairs of a first token, which has no draft, and a second one, which is judged. BATON_DRAWS sets how many.
TEST(SampledProposals, WhatTheEngineSaysHasTheTargetsDistribution) {
  const char* const wanted = std::getenv("BATON_DRAWS");
  const int64_t requests = wanted != nullptr ? std::atoll(wanted) : 3000;
  constexpr size_t kTop = 4;
  const uint32_t start = test_seed();
  RequestSpec spec;
  spec.prompt = {5, 77, 130};
  spec.max_tokens = 1;
  spec.cache_prompt = false;
  spec.sampling.logprobs = kLogprobs;
  const auto best = [](World& w, const RequestSpec& s) {
    GatheringSink sink(1, true);
    EXPECT_TRUE(w.local->engine().submit(s, sink).ok());
    sink.wait();
    std::vector<std::pair<int32_t, double>> p;  // of the kTop most likely tokens
    double sum = 0;
    for (size_t k = 0; k < kTop; ++k) {
      p.emplace_back(sink.choices()[0].top[0][k].token, std::exp(double{sink.choices()[0].top[0][k].logprob}));
      sum += p.back().second;
    }
    for (auto& [token, x] : p) x /= sum;
    return p;
  };
  std::map<std::pair<int32_t, int32_t>, double> expected;
  std::vector<int32_t> likely;
  {
    World w(options(1), kFolder);
    for (const auto& [first, p] : best(w, spec)) {
      RequestSpec next = spec;
      next.prompt.push_back(first);
      for (const auto& [second, q] : best(w, next)) {
        expected[{first, second}] = p * q;
        likely.push_back(second);
      }
    }
    std::sort(likely.begin(), likely.end());
    likely.erase(std::unique(likely.begin(), likely.end()), likely.end());
  }
  LocalOptions o = options(48);
  o.max_waiting = std::numeric_limits<int32_t>::max();
  o.drafter.name = "proposing";
  o.drafter.needs.most_drafts = 2;
  o.drafter.load = [&likely, needs = o.drafter.needs](model::Glm5Next&, ops::Backend&, int64_t) -> Result<std::unique_ptr<model::Drafter>> {
    return std::unique_ptr<model::Drafter>(std::make_unique<Proposing>(needs, likely));
  };
  o.speculation.sampled_proposals = true;
  World w(o, kFolder);
  spec.max_tokens = 3;
  spec.sampling = {};
  spec.sampling.temperature = 1;
  spec.sampling.top_k = static_cast<int32_t>(kTop);
  std::vector<RequestSpec> all(static_cast<size_t>(requests), spec);
  for (size_t i = 0; i < all.size(); ++i) all[i].sampling.seed = uint64_t{start} << 32U | i;
  std::map<std::pair<int32_t, int32_t>, int64_t> came;
  for (const Answer& a : w.ask_all(all)) ++came[{a.tokens[0][0], a.tokens[0][1]}];
  const speculate::Metrics m = w.metrics().speculation;
  EXPECT_GT(m.accepted, 0);
  EXPECT_LT(m.accepted, m.drafted);
  std::vector<double> probabilities;
  std::vector<int64_t> counts;
  int64_t all_counts = 0;
  for (const auto& [pair, p] : expected) {
    probabilities.push_back(p);
    counts.push_back(came[pair]);
    all_counts += counts.back();
  }
  EXPECT_EQ(all_counts, requests) << "tokens came that top_k leaves out";
  int cells = 0;
  const double chi = chi_square(probabilities, counts, requests, cells);
  EXPECT_LT(chi, limit_of(cells)) << cells << " cells";
}

}  // namespace
}  // namespace baton::testing
