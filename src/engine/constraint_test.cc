// Constraints through the engine, over a device made of token lists: what is drawn keeps to the form, whatever happens to the request.
#include "engine/constraint.h"

#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "base/test_seed.h"
#include "engine/gathering_sink.h"
#include "engine/token_executor.h"

namespace baton::engine {
namespace {

using sched::FinishReason;
using sched::RequestSpec;

constexpr int64_t kVocabulary = 97;
constexpr int32_t kEnd = 96;

// Token i of the output leaves i % 3 when divided by 3 and is not kEnd, except that every fifth one is free; after `length` of them comes
// kEnd. Checks that it is asked and told in turn.
class StepForm final : public Constraint {
 public:
  struct Options {
    int64_t length = 30;
    int64_t next_fails_at = -1;  // by the number of tokens before
    int64_t accept_fails_at = -1;
    int64_t nothing_at = -1;
  };
  explicit StepForm(const Options& options) : options_(options) { ++alive; }
  ~StepForm() override { --alive; }

  // Whether it is free, and otherwise what may come.
  static bool is_free(int64_t i, const Options& o) { return i < o.length && i % 5 == 4; }
  static bool allows(int64_t i, int32_t token, const Options& o) {
    if (i == o.nothing_at) return false;
    if (i >= o.length) return token == kEnd;
    return is_free(i, o) || (token % 3 == i % 3 && token != kEnd);
  }

  size_t mask_words() const override { return (kVocabulary + 31) / 32; }
  Result<Next> next(std::span<uint32_t> mask) override {
    EXPECT_EQ(mask.size(), mask_words());
    if (over_) return Next::kOver;
    if (told_ == options_.next_fails_at) return Error{Error::Kind::kUnsupported, "next was asked to fail"};
    if (is_free(told_, options_) && told_ != options_.nothing_at) return Next::kAny;
    std::fill(mask.begin(), mask.end(), 0);
    for (int32_t t = 0; t < kVocabulary; ++t)
      if (allows(told_, t, options_)) mask[static_cast<size_t>(t) / 32] |= 1U << t % 32;
    return Next::kSome;
  }
  Status accept(int32_t token) override {
    if (told_ == options_.accept_fails_at) return Error{Error::Kind::kUnsupported, "accept was asked to fail"};
    EXPECT_TRUE(allows(told_, token, options_)) << "token " << token << " at " << told_;
    over_ = told_ >= options_.length;
    ++told_;
    return {};
  }
  Status rollback(size_t tokens) override {
    told_ -= static_cast<int64_t>(tokens);
    over_ = told_ > options_.length;
    return {};
  }
  Result<std::unique_ptr<Constraint>> fork() const override { return std::unique_ptr<Constraint>(new StepForm(*this)); }

  static inline std::atomic<int> alive{0};

 private:
  StepForm(const StepForm& o) : options_(o.options_), told_(o.told_), over_(o.over_) { ++alive; }

  Options options_;
  int64_t told_ = 0;
  bool over_ = false;
};

std::unique_ptr<Constraint> form(const StepForm::Options& o = {}) { return std::make_unique<StepForm>(o); }

// What a constrained request gets alone, at most `count` tokens.
std::vector<int32_t> expected(const RequestSpec& spec, const StepForm::Options& o, int32_t choice, int64_t count) {
  std::vector<int32_t> tokens = spec.prompt;
  for (int64_t i = 0; i < count; ++i) {
    int32_t t = sched::next_token(tokens, choice, kVocabulary);
    while (!StepForm::allows(i, t, o)) t = static_cast<int32_t>((t + 1) % kVocabulary);
    tokens.push_back(t);
    if (t == kEnd && !spec.stop_tokens.empty()) break;
  }
  return {tokens.begin() + std::ssize(spec.prompt), tokens.end()};
}

EngineOptions options_for(int32_t slots, int32_t pages, bool host = true) {
  EngineOptions o;
  o.scheduler.memory = {.pages = pages, .slots = slots, .snapshots = 4, .host_pages = host ? 8 : 0, .host_slots = host ? 2 : 0};
  o.scheduler.context_tokens = 64 * 6;
  o.scheduler.vocabulary = kVocabulary;
  o.scheduler.prefill_tokens = 128;
  o.scheduler.growth_tokens = 16;
  o.scheduler.snapshot_tokens = 64;
  o.scheduler.max_waiting = 10'000;
  return o;
}

std::unique_ptr<Engine> engine_with(const EngineOptions& o) {
  auto engine = Engine::create(std::make_unique<TokenExecutor>(o.scheduler.memory, kVocabulary), o);
  EXPECT_TRUE(engine.ok());
  return std::move(*engine);
}

class ProblemSink final : public Sink {
 public:
  explicit ProblemSink(int32_t choices = 1) : gathered_(choices), problems(static_cast<size_t>(choices)) {}
  void on_event(const sched::Event& event, float logprob, std::span<const ops::TokenLogprob> top) override {
    gathered_.on_event(event, logprob, top);
  }
  void on_problem(int32_t choice, const Error& error) override {
    EXPECT_EQ(gathered_.choices()[static_cast<size_t>(choice)].ends, 0);
    problems[static_cast<size_t>(choice)] += error.message;
  }
  void on_refused(const Error& error) override { gathered_.on_refused(error); }
  const std::vector<GatheringSink::Choice>& wait() {
    gathered_.wait();
    return gathered_.choices();
  }

 private:
  GatheringSink gathered_;

 public:
  std::vector<std::string> problems;  // by choice
};

TEST(Constraint, HoldsEachChoiceToTheFormAndEndsIt) {
  const auto engine = engine_with(options_for(4, 40));
  for (const bool stops : {true, false}) {  // without a stop token, the form's own end ends the choice
    RequestSpec spec;
    spec.prompt = {1, 2, 7};
    spec.choices = 3;
    if (stops) spec.stop_tokens = {kEnd};
    ProblemSink sink(3);
    ASSERT_TRUE(engine->submit(spec, sink, form()).ok());
    for (int32_t c = 0; c < 3; ++c) {
      const GatheringSink::Choice& got = sink.wait()[static_cast<size_t>(c)];
      EXPECT_EQ(got.reason, FinishReason::kStop);
      EXPECT_EQ(got.ends, 1);
      EXPECT_EQ(got.tokens, expected(spec, {}, c, 31));
      EXPECT_EQ(got.tokens.back(), kEnd);
      EXPECT_EQ(sink.problems[static_cast<size_t>(c)], "");
    }
  }
  engine->wait_idle();
  EXPECT_EQ(StepForm::alive, 0);
}

TEST(Constraint, AFailureEndsTheChoiceWithItsReasonAndNothingUnmaskedIsDelivered) {
  const auto engine = engine_with(options_for(4, 40));
  RequestSpec spec;
  spec.prompt = {4, 5};
  for (const int64_t at : {0, 1, 4, 17}) {
    const std::pair<StepForm::Options, const char*> cases[] = {{{.next_fails_at = at}, "next was asked to fail"},
                                                               {{.accept_fails_at = at}, "accept was asked to fail"}};
    for (const auto& [options, why] : cases) {
      ProblemSink sink;
      ASSERT_TRUE(engine->submit(spec, sink, form(options)).ok());
      const GatheringSink::Choice& got = sink.wait()[0];
      EXPECT_EQ(got.reason, FinishReason::kConstraint);
      EXPECT_EQ(got.tokens, expected(spec, {}, 0, at));
      EXPECT_EQ(sink.problems[0], why);
    }
    ProblemSink sink;
    ASSERT_TRUE(engine->submit(spec, sink, form({.nothing_at = at})).ok());
    EXPECT_EQ(sink.wait()[0].reason, FinishReason::kNothingAllowed);
    EXPECT_EQ(sink.wait()[0].tokens, expected(spec, {}, 0, at));
    EXPECT_EQ(sink.problems[0], "");
  }
  engine->wait_idle();
  EXPECT_EQ(StepForm::alive, 0);
}

class OtherWidth final : public Constraint {
 public:
  explicit OtherWidth(size_t words) : words_(words) {}
  size_t mask_words() const override { return words_; }
  Result<Next> next(std::span<uint32_t>) override { return Next::kAny; }
  Status accept(int32_t) override { return {}; }
  Status rollback(size_t) override { return {}; }
  Result<std::unique_ptr<Constraint>> fork() const override { return Error{Error::Kind::kUnsupported, "no forks"}; }

 private:
  size_t words_;
};

TEST(Constraint, OneOfAnotherWidthIsRefusedAndSoIsOneThatCannotBeForked) {
  const auto engine = engine_with(options_for(4, 40));
  GatheringSink sink(2);
  RequestSpec spec;
  spec.prompt = {1};
  const auto narrow = engine->submit(spec, sink, std::make_unique<OtherWidth>(3));
  ASSERT_FALSE(narrow.ok());
  EXPECT_EQ(narrow.error().message, "the constraint's masks have 3 words; 97 tokens need 4");
  spec.choices = 2;
  const auto single = engine->submit(spec, sink, std::make_unique<OtherWidth>(4));
  ASSERT_FALSE(single.ok());
  EXPECT_EQ(single.error().message, "no forks");
}

// Too little memory for all that run: sequences are retracted to the host, or computed again, and cancelled at any stage.
TEST(Constraint, RetractionForksFailuresAndCancellationLeaveTheFormAndNothingElseBehind) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
  std::mt19937 random(seed);
  int64_t retracted = 0, recomputed = 0, forks = 0;
  for (int round = 0; round < 24; ++round) {
    EngineOptions o = options_for(2 + static_cast<int32_t>(random() % 5), 8 + static_cast<int32_t>(random() % 8), round % 2 == 0);
    o.plan_ahead = round % 4 != 3;
    auto executor = std::make_unique<TokenExecutor>(o.scheduler.memory, kVocabulary);
    if (round % 6 == 5) executor->fail_at(1 + static_cast<int64_t>(random() % 300));
    auto engine = std::move(*Engine::create(std::move(executor), o));
    struct Asked {
      RequestSpec spec;
      StepForm::Options form;
      bool constrained;
      std::unique_ptr<ProblemSink> sink;
    };
    std::vector<Asked> all;
    for (int i = 0; i < 40; ++i) {
      Asked a;
      a.spec.prompt.assign(1 + random() % 150, static_cast<int32_t>(random() % 3));
      a.spec.choices = random() % 3 == 0 ? 1 + static_cast<int32_t>(random() % static_cast<uint32_t>(o.scheduler.memory.slots)) : 1;
      if (random() % 2 == 0) a.spec.stop_tokens = {kEnd};
      a.spec.priority = static_cast<int32_t>(random() % 3);
      if (random() % 4 == 0) a.spec.max_tokens = 1 + static_cast<int64_t>(random() % 100);
      a.form.length = static_cast<int64_t>(random() % 150);
      if (random() % 8 == 0) a.form.next_fails_at = static_cast<int64_t>(random() % 150);
      if (random() % 8 == 0) a.form.accept_fails_at = static_cast<int64_t>(random() % 150);
      a.constrained = random() % 4 != 0;
      a.sink = std::make_unique<ProblemSink>(a.spec.choices);
      const auto id = engine->submit(a.spec, *a.sink, a.constrained ? form(a.form) : nullptr);
      ASSERT_TRUE(id.ok());
      if (random() % 6 == 0) engine->cancel(*id);
      if (random() % 8 == 0) engine->stop(*id, static_cast<int32_t>(random() % 2));
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
      if (!all.empty() && random() % 8 == 0) engine->cancel(1 + random() % all.size());
      all.push_back(std::move(a));
    }
    if (round % 3 != 0) engine->wait_idle();
    const sched::Metrics m = engine->metrics().scheduler;
    retracted += m.retractions_to_host;
    recomputed += m.retractions_recomputed;
    forks += m.forks;
    if (round % 3 != 0) {
      EXPECT_EQ(StepForm::alive, 0);
    }
    engine.reset();  // cancels what is left
    EXPECT_EQ(StepForm::alive, 0);
    for (const Asked& a : all)
      for (int32_t c = 0; c < a.spec.choices; ++c) {
        const GatheringSink::Choice& got = a.sink->wait()[static_cast<size_t>(c)];
        ASSERT_EQ(got.ends, 1);
        EXPECT_EQ(got.reason == FinishReason::kConstraint, !a.sink->problems[static_cast<size_t>(c)].empty());
        if (!a.constrained) continue;
        ASSERT_EQ(got.tokens, expected(a.spec, a.form, c, std::ssize(got.tokens)));
        EXPECT_LE(std::ssize(got.tokens), a.form.length + 1);
        if (got.reason == FinishReason::kStop && got.usage.generated_tokens == a.form.length + 1) {
          EXPECT_EQ(got.tokens.back(), kEnd);
        }
      }
  }
  EXPECT_GT(retracted, 0);
  EXPECT_GT(recomputed, 0);
  EXPECT_GT(forks, 0);
}

}  // namespace
}  // namespace baton::engine
