// The promise of the engine on the CPU with float state: what a request gets, to the bit of its log-probabilities, does not depend on what
// else runs, on where its prompt is cut, on what is cached, on retraction, or on planning ahead. With
// BATON_TEST_DEVICE=cuda on that device.
#include <cstdlib>

#include "engine/slot_sampling.h"
#include "engine/world.h"

namespace baton::testing {
namespace {

struct Case {
  std::string folder;
  DType activation;
  DType cache;
};

std::string name_of(const ::testing::TestParamInfo<Case>& info) {
  std::string name = fmt::format("{}_{}_{}", info.param.folder, dtype_name(info.param.activation), dtype_name(info.param.cache));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class EngineExactness : public ::testing::TestWithParam<Case> {
 protected:
  static LocalOptions options(int32_t running) {
    const Case& c = GetParam();
    LocalOptions o = small_options(running);
    if (const char* device = std::getenv("BATON_TEST_DEVICE"); device != nullptr && std::string(device) == "cuda")
      o.device = engine::Device::kCuda;
    o.numerics.activation = c.activation;
    o.cache = {.activation = c.activation, .state = DType::kF32, .latent = c.cache, .index = c.cache};
    return o;
  }
  static int64_t vocabulary() {
    const auto checkpoint = model::Checkpoint::open(golden_dir(GetParam().folder));
    return checkpoint->config().vocab_size;
  }
  static std::vector<RequestSpec> specs(size_t count, uint32_t seed) { return make_specs(count, seed, vocabulary()); }
  static std::vector<Answer> alone(const std::vector<RequestSpec>& specs, bool constrain = false) {
    std::vector<Answer> answers;
    World w(options(1), GetParam().folder);
    w.constrain = constrain;
    for (RequestSpec s : specs) {
      s.cache_prompt = false;
      answers.push_back(w.ask(s));
    }
    return answers;
  }
};

TEST_P(EngineExactness, AloneIsWhatTheModelGivesTokenByToken) {
  RequestSpec spec = specs(2, 1)[1];
  const Answer got = alone({spec}).front();
  ModelSetup s = setup_for(GetParam().folder, GetParam().activation);
  s.latent = GetParam().cache;
  TestModel m(s);
  std::vector<int32_t> expected;
  MatrixView hidden;
  for (const int32_t& id : spec.prompt) {
    const model::SequenceRunner::Rows rows{0, {&id, 1}, false};
    hidden = m.runner->forward({&rows, 1});
  }
  while (static_cast<int64_t>(expected.size()) < spec.max_tokens) {
    expected.push_back(m.runner->sample(hidden, {.position = static_cast<int32_t>(spec.prompt.size() + expected.size())}));
    const model::SequenceRunner::Rows rows{0, {&expected.back(), 1}, false};
    hidden = m.runner->forward({&rows, 1});
  }
  EXPECT_EQ(got.tokens[0], expected);
}

TEST_P(EngineExactness, BatchOf32ColdAndWarmEqualsAlone) {
  const std::vector<RequestSpec> all = specs(32, 2);
  const std::vector<Answer> wanted = alone(all);
  World w(options(32), GetParam().folder);
  expect_equal(w.ask_all(all), wanted, "cold");
  const int64_t before = w.local->engine().metrics().scheduler.tokens_matched_state;
  expect_equal(w.ask_all(all), wanted, "warm");
  EXPECT_GT(w.metrics().tokens_matched_state, before) << "the second round found nothing in the cache";
}

TEST_P(EngineExactness, ChunkBudgetAndPlanningAheadDoNotMatter) {
  const std::vector<RequestSpec> all = specs(12, 3);
  const std::vector<Answer> wanted = alone(all);
  for (const int64_t budget : {1, 5, 63, 64, 100, 128, 1000}) {
    LocalOptions o = options(12);
    o.prefill_tokens = budget;
    o.plan_ahead = budget % 2 == 0;
    World w(o, GetParam().folder);
    expect_equal(w.ask_all(all), wanted, fmt::format("budget {}", budget).c_str());
    if (HasFatalFailure()) return;
  }
}

TEST_P(EngineExactness, RetractionEvictionAndReturnDoNotMatter) {
  std::vector<RequestSpec> all = specs(10, 4);
  for (RequestSpec& s : all) s.max_tokens = 150;
  const std::vector<Answer> wanted = alone(all);
  for (const int64_t host_bytes : {int64_t{0}, int64_t{64} << 20}) {
    LocalOptions o = options(6);
    o.pool_tokens = 14 * 64;
    o.snapshots = 3;
    o.growth_tokens = 16;
    o.host_bytes = host_bytes;
    World w(o, GetParam().folder);
    expect_equal(w.ask_all(all), wanted, "first");
    expect_equal(w.ask_all(all), wanted, "again, after eviction");
    const sched::Metrics m = w.metrics();
    EXPECT_GT(host_bytes > 0 ? m.retractions_to_host : m.retractions_recomputed, 0);
    EXPECT_GT(m.pages_evicted, 0);
    EXPECT_EQ(m.slots_free, m.slots);
    EXPECT_EQ(m.pages_held, 0);
  }
}

TEST_P(EngineExactness, ChoicesForkedFromOnePromptEqualRequestsOfTheirOwn) {
  for (const size_t length : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{200}}) {
    RequestSpec spec = specs(1, 5).front();
    spec.prompt.resize(length, 7);
    spec.max_tokens = 100;
    spec.choices = 4;
    std::vector<RequestSpec> each;
    for (int32_t c = 0; c < spec.choices; ++c) {
      each.push_back(spec);
      each.back().choices = 1;
      each.back().sampling.seed = engine::seed_of_choice(spec.sampling.seed, c);
    }
    const std::vector<Answer> wanted = alone(each);
    for (const bool cached : {true, false}) {
      World w(options(6), GetParam().folder);
      spec.cache_prompt = cached;
      const Answer got = w.ask(spec);
      for (size_t c = 0; c < 4; ++c) {
        EXPECT_EQ(got.tokens[c], wanted[c].tokens[0]) << "choice " << c << " of a prompt of " << length;
        EXPECT_EQ(got.bits[c], wanted[c].bits[0]);
      }
      EXPECT_EQ(w.metrics().forks, 3);
    }
  }
}

TEST_P(EngineExactness, ConstrainedRequestsDependOnNothingElseEither) {
  std::vector<RequestSpec> all = specs(12, 7);
  for (RequestSpec& s : all) s.max_tokens = 150;
  const std::vector<Answer> wanted = alone(all, true);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(wanted[i].tokens[0].size(), i % 2 == 0 ? 100U : 150U);
  for (const int64_t host_bytes : {int64_t{0}, int64_t{64} << 20}) {
    LocalOptions o = options(6);
    o.pool_tokens = 10 * 64;
    o.growth_tokens = 16;
    o.host_bytes = host_bytes;
    World w(o, GetParam().folder);
    w.constrain = true;
    expect_equal(w.ask_all(all), wanted, host_bytes > 0 ? "copied" : "recomputed");
    const sched::Metrics m = w.metrics();
    EXPECT_GT(host_bytes > 0 ? m.retractions_to_host : m.retractions_recomputed, 0);
  }
}

// Rows of the head that no id has are there, and never drawn.
TEST_P(EngineExactness, PaddingOfTheVocabularyIsNeverDrawn) {
  RequestSpec spec = specs(1, 10).front();
  spec.sampling = {};
  spec.sampling.temperature = 50;  // all but uniform
  spec.sampling.logprobs = kLogprobs;
  spec.max_tokens = 300;
  LocalOptions o = options(2);
  o.vocabulary = vocabulary() / 2 + 1;
  for (int32_t& t : spec.prompt) t = static_cast<int32_t>(t % o.vocabulary);
  World w(o, GetParam().folder);
  GatheringSink sink(1, true);
  ASSERT_TRUE(w.local->engine().submit(spec, sink).ok());
  sink.wait();
  const GatheringSink::Choice& c = sink.choices()[0];
  ASSERT_EQ(c.tokens.size(), 300U);
  EXPECT_LT(*std::max_element(c.tokens.begin(), c.tokens.end()), o.vocabulary);
  EXPECT_GT(*std::max_element(c.tokens.begin(), c.tokens.end()), o.vocabulary / 2);
  for (const auto& top : c.top)
    for (const ops::TokenLogprob& t : top) EXPECT_LT(t.token, o.vocabulary);
  spec.prompt.back() = static_cast<int32_t>(o.vocabulary);
  EXPECT_FALSE(w.local->engine().submit(spec, sink).ok());
}

// Each turn of a conversation starts behind the answer of the one before, from a state that was left there while others ran.
TEST_P(EngineExactness, TheNextTurnOfAConversationStartsBehindTheAnswer) {
  World w(options(6), GetParam().folder);
  converse(w, specs(6, 9), [](const auto& now) { return alone(now); });
}

// What a token costs does not depend on whether it was drawn or given.
TEST_P(EngineExactness, PromptLogprobsAreThoseOfTheSameTokensDrawn) {
  RequestSpec spec = specs(3, 8)[1];
  spec.sampling = {};
  spec.sampling.logprobs = kLogprobs;
  spec.max_tokens = 150;
  for (const int32_t running : {1, 6}) {
    LocalOptions o = options(running);
    o.prefill_tokens = running == 1 ? 256 : 50;
    World w(o, GetParam().folder);
    GatheringSink drawn(1, true), given;
    EXPECT_TRUE(w.local->engine().submit(spec, drawn).ok());
    drawn.wait();
    const GatheringSink::Choice& c = drawn.choices()[0];
    RequestSpec again;
    again.prompt = spec.prompt;
    again.prompt.insert(again.prompt.end(), c.tokens.begin(), c.tokens.end());
    again.max_tokens = 1;
    again.sampling.prompt_logprobs = kLogprobs;
    EXPECT_TRUE(w.local->engine().submit(again, given).ok());
    given.wait();
    EXPECT_EQ(given.choices()[0].usage.cached_tokens, 0);
    ASSERT_EQ(given.prompt_logprobs().size(), again.prompt.size() - 1);
    EXPECT_TRUE(given.prompt_in_order());
    for (size_t i = 0; i < c.tokens.size(); ++i) {
      const size_t at = spec.prompt.size() - 1 + i;
      ASSERT_EQ(given.prompt_logprobs()[at], c.logprobs[i]) << "token " << i;
      for (size_t k = 0; k < kLogprobs; ++k) {
        ASSERT_EQ(given.prompt_top()[at * kLogprobs + k].token, c.top[i][k].token);
        ASSERT_EQ(given.prompt_top()[at * kLogprobs + k].logprob, c.top[i][k].logprob);
      }
    }
  }
}

TEST_P(EngineExactness, ABranchOfAPromptLeavesAStateBehindOnSecondSight) {
  World w(options(4), GetParam().folder);
  std::mt19937 random(6);
  std::vector<int32_t> stem(150);
  for (int32_t& t : stem) t = static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary()));
  const auto ask = [&](int32_t last) {
    RequestSpec s;
    s.prompt = stem;
    for (int32_t i = 0; i < 100; ++i) s.prompt.push_back((last + i) % 50);
    s.max_tokens = 4;
    return w.ask(s).usage[0].cached_tokens;
  };
  EXPECT_EQ(ask(1), 0);
  EXPECT_EQ(ask(2), 0) << "pages of 128 tokens match, but there is no state at their end";
  EXPECT_EQ(ask(3), 128) << "the second request left one";
  EXPECT_EQ(ask(3), 192) << "and each prompt leaves one at its last full page";
}

INSTANTIATE_TEST_SUITE_P(Golden, EngineExactness,
                         ::testing::Values(Case{"tiny", DType::kF32, DType::kF32}, Case{"small-bf16", DType::kBF16, DType::kF8E4M3},
                                           Case{"mtp", DType::kF32, DType::kF32}),
                         name_of);

}  // namespace
}  // namespace baton::testing
