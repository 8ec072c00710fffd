// The engine thread and its mailbox, over a device made of token lists.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <deque>
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

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

EngineOptions options_for(int32_t slots, int32_t pages) {
  EngineOptions o;
  o.scheduler.memory = {.pages = pages, .slots = slots, .snapshots = 4, .host_pages = 8, .host_slots = 2};
  o.scheduler.context_tokens = 64 * 6;
  o.scheduler.vocabulary = kVocabulary;
  o.scheduler.prefill_tokens = 128;
  o.scheduler.growth_tokens = 32;
  o.scheduler.snapshot_tokens = 64;
  o.scheduler.max_waiting = 10'000;
  return o;
}

std::unique_ptr<Engine> engine_with(const EngineOptions& o) {
  auto engine = Engine::create(std::make_unique<TokenExecutor>(o.scheduler.memory, kVocabulary), o);
  EXPECT_TRUE(engine.ok());
  return std::move(*engine);
}

void expect_idle(Engine& engine) {
  engine.wait_idle();
  engine.flush_cache();
  engine.wait_idle();
  const sched::Metrics m = engine.metrics().scheduler;
  EXPECT_EQ(m.slots_free, m.slots);
  EXPECT_EQ(m.pages_free, m.pages);
  EXPECT_EQ(m.snapshots_cached + m.snapshots_held, 0);
  EXPECT_EQ(m.host_slots_free, m.host_slots);
  EXPECT_EQ(m.host_pages_free, m.host_pages);
  EXPECT_EQ(m.waiting + m.retracted + m.prefilling + m.decoding + m.draining, 0);
  EXPECT_EQ(m.submitted, m.completed + m.cancelled + m.expired + m.failed);
}

std::vector<int32_t> alone(const std::vector<int32_t>& prompt, int64_t count) {
  std::vector<int32_t> tokens = prompt;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(sched::next_token(tokens, 0, kVocabulary));
  return {tokens.begin() + std::ssize(prompt), tokens.end()};
}

TEST(Engine, SixtyFourRequestsOnFourSlotsAreAllServedInOrder) {
  const auto engine = engine_with(options_for(4, 40));
  std::vector<std::unique_ptr<GatheringSink>> sinks;
  for (int i = 0; i < 64; ++i) {
    sinks.push_back(std::make_unique<GatheringSink>());
    RequestSpec spec;
    spec.prompt = {i, i + 1, 3};
    spec.max_tokens = 20;
    ASSERT_TRUE(engine->submit(spec, *sinks.back()).ok());
  }
  for (int i = 0; i < 64; ++i) {
    sinks[static_cast<size_t>(i)]->wait();
    const GatheringSink::Choice& c = sinks[static_cast<size_t>(i)]->choices()[0];
    EXPECT_EQ(c.tokens, alone({i, i + 1, 3}, 20));
    EXPECT_EQ(c.reason, FinishReason::kLength);
    EXPECT_EQ(c.ends, 1);
  }
  expect_idle(*engine);
}

TEST(Engine, FiveThousandRequestsAbortedAtRandomStagesLeaveNothingBehind) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
  std::mt19937 random(seed);
  const auto engine = engine_with(options_for(8, 30));
  std::vector<std::unique_ptr<GatheringSink>> sinks;
  std::vector<sched::RequestId> ids;
  for (int i = 0; i < 5000; ++i) {
    RequestSpec spec;
    spec.prompt.assign(1 + random() % 300, static_cast<int32_t>(random() % 5));
    spec.choices = random() % 8 == 0 ? 3 : 1;
    spec.salt = random() % 3;
    sinks.push_back(std::make_unique<GatheringSink>(spec.choices));
    const auto id = engine->submit(spec, *sinks.back());
    ASSERT_TRUE(id.ok());
    ids.push_back(*id);
    // Some at once, some after a while, some while tokens stream.
    const size_t victim = random() % ids.size();
    if (random() % 4 == 0) sinks[victim]->wait_tokens(0, random() % 3);
    engine->cancel(ids[victim]);
    if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
  }
  for (const sched::RequestId id : ids) engine->cancel(id);
  for (const auto& sink : sinks) {
    sink->wait();
    for (const GatheringSink::Choice& c : sink->choices()) ASSERT_EQ(c.ends, 1);
  }
  expect_idle(*engine);
}

TEST(Engine, ManyThreadsSubmitAndCancelAtOnce) {
  const auto engine = engine_with(options_for(6, 40));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&engine, t] {
      std::mt19937 random(static_cast<uint32_t>(t));
      for (int i = 0; i < 100; ++i) {
        GatheringSink sink;
        RequestSpec spec;
        spec.prompt = {t, i % 90, 5};
        spec.max_tokens = 1 + static_cast<int64_t>(random() % 40);
        const auto id = engine->submit(spec, sink);
        ASSERT_TRUE(id.ok());
        if (i % 3 == 0) engine->cancel(*id);
        sink.wait();
        if (i % 3 != 0) {
          EXPECT_EQ(sink.choices()[0].tokens, alone(spec.prompt, spec.max_tokens));
        }
      }
    });
  for (std::thread& t : threads) t.join();
  expect_idle(*engine);
}

TEST(Engine, RefusalsNameTheField) {
  const auto engine = engine_with(options_for(2, 20));
  const auto refusal = [&](RequestSpec spec) {
    GatheringSink sink;
    const auto id = engine->submit(std::move(spec), sink);
    return id.ok() ? std::string("taken") : id.error().message;
  };
  EXPECT_PRED2(contains, refusal({}), "prompt is empty");
  RequestSpec wrong;
  wrong.prompt = {1, 2, 97};
  EXPECT_PRED2(contains, refusal(wrong), "prompt[2] is 97");
  RequestSpec long_prompt;
  long_prompt.prompt.assign(384, 1);
  EXPECT_PRED2(contains, refusal(long_prompt), "384 tokens and the context holds 384");
  RequestSpec many;
  many.prompt = {1};
  many.choices = 3;
  EXPECT_PRED2(contains, refusal(many), "choices is 3");
  RequestSpec none;
  none.prompt = {1};
  none.max_tokens = 0;
  EXPECT_PRED2(contains, refusal(none), "max_tokens is 0");
  expect_idle(*engine);
}

TEST(Engine, AFullQueueIsToldToTheSink) {
  EngineOptions o = options_for(1, 20);
  o.scheduler.max_waiting = 1;
  const auto engine = engine_with(o);
  RequestSpec spec;
  spec.prompt = {1, 2};
  spec.max_tokens = 300;
  std::vector<std::unique_ptr<GatheringSink>> sinks;
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    sinks.push_back(std::make_unique<GatheringSink>());
    ASSERT_TRUE(engine->submit(spec, *sinks.back()).ok());
  }
  for (const auto& sink : sinks) {
    sink->wait();
    refused += sink->refusal() ? 1 : 0;
    EXPECT_EQ(sink->choices()[0].ends, sink->refusal() ? 0 : 1);
  }
  EXPECT_GT(refused, 0);
  expect_idle(*engine);
  EXPECT_EQ(engine->metrics().scheduler.refused, refused);
}

TEST(Engine, DeadlinesEndWaitingAndRunningRequests) {
  EngineOptions o = options_for(1, 20);
  const auto engine = engine_with(o);
  const auto in = [](int64_t milliseconds) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count() +
           milliseconds * 1'000'000;
  };
  GatheringSink late;
  RequestSpec spec;
  spec.prompt = {1, 2};
  spec.deadline = in(-1);
  ASSERT_TRUE(engine->submit(spec, late).ok());
  late.wait();
  EXPECT_EQ(late.choices()[0].reason, FinishReason::kDeadline);
  EXPECT_TRUE(late.choices()[0].tokens.empty());
  expect_idle(*engine);
}

TEST(Engine, AFailedCycleEndsEverythingThatRunsAndTheEngineGoesOn) {
  EngineOptions o = options_for(2, 20);
  auto executor = std::make_unique<TokenExecutor>(o.scheduler.memory, kVocabulary);
  executor->fail_at(5);
  auto created = Engine::create(std::move(executor), o);
  ASSERT_TRUE(created.ok());
  GatheringSink first, second;
  RequestSpec spec;
  spec.prompt = {1, 2};
  spec.max_tokens = 100;
  ASSERT_TRUE((*created)->submit(spec, first).ok());
  first.wait();
  EXPECT_EQ(first.choices()[0].reason, FinishReason::kFailed);
  ASSERT_TRUE((*created)->submit(spec, second).ok());
  second.wait();
  EXPECT_EQ(second.choices()[0].tokens, alone(spec.prompt, 100));
  expect_idle(**created);
}

// Every draw has as many log-probabilities as the cycle's most demanding request wants, whoever it is for.
class LogprobExecutor final : public CycleExecutor {
 public:
  static constexpr int32_t kTop = 5;

  explicit LogprobExecutor(const sched::MemorySizes& sizes) : tokens_(sizes, kVocabulary) {}
  void launch(const sched::Cycle& cycle, std::span<const BoundChoice> bound) override { tokens_.launch(cycle, bound); }
  const CycleResult* poll() override {
    const CycleResult* result = tokens_.poll();
    if (result == nullptr) return nullptr;
    result_ = *result;
    result_.logprobs.assign(result_.tokens.size(), -1.5F);
    result_.top.assign(result_.tokens.size() * kTop, {7, -0.5F});
    result_.top_stride = kTop;
    return &result_;
  }
  void on_result(std::function<void()> notify) override { tokens_.on_result(std::move(notify)); }

 private:
  TokenExecutor tokens_;
  CycleResult result_;
};

TEST(Engine, ARequestHearsTheLogprobsThatItAskedForAndNoOthers) {
  const EngineOptions o = options_for(4, 40);
  const auto engine = std::move(*Engine::create(std::make_unique<LogprobExecutor>(o.scheduler.memory), o));
  GatheringSink none(1, true), own(1, true), two(1, true), five(1, true);
  const std::pair<GatheringSink*, int32_t> all[] = {{&none, -1}, {&own, 0}, {&two, 2}, {&five, 5}};
  for (const auto& [sink, logprobs] : all) {
    RequestSpec spec;
    spec.prompt = {1, 2};
    spec.max_tokens = 20;
    spec.sampling.logprobs = logprobs;
    ASSERT_TRUE(engine->submit(spec, *sink).ok());
  }
  for (const auto& [sink, logprobs] : all) {
    sink->wait();
    for (const auto& top : sink->choices()[0].top) EXPECT_EQ(std::ssize(top), std::max(logprobs, 0));
    for (const float logprob : sink->choices()[0].logprobs) EXPECT_EQ(logprob, logprobs >= 0 ? -1.5F : 0.0F);
  }
}

// Prompts whose log-probabilities are asked for, among others that fill the cache and the memory: each token's once, in order.
TEST(Engine, PromptLogprobsComeOnceForEachTokenWhateverHappens) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
  std::mt19937 random(seed);
  int64_t retracted = 0;
  for (int round = 0; round < 12; ++round) {
    EngineOptions o = options_for(2 + static_cast<int32_t>(random() % 4), 9);
    o.scheduler.prefill_tokens = 1 + static_cast<int64_t>(random() % 200);
    if (round % 2 == 0) o.scheduler.memory.host_pages = o.scheduler.memory.host_slots = 0;
    o.scheduler.growth_tokens = 8;
    const auto engine = engine_with(o);
    struct Asked {
      RequestSpec spec;
      bool cancelled;
      std::unique_ptr<GatheringSink> sink;
    };
    std::vector<Asked> all;
    for (int i = 0; i < 40; ++i) {
      Asked a{.spec = {}, .cancelled = random() % 6 == 0, .sink = nullptr};
      for (size_t length = 1 + random() % 260; length > 0; --length) a.spec.prompt.push_back(static_cast<int32_t>(length % 3));
      a.spec.max_tokens = 1 + static_cast<int64_t>(random() % 100);
      a.spec.choices = random() % 4 == 0 ? 2 : 1;
      a.spec.priority = static_cast<int32_t>(random() % 2);
      a.spec.sampling.prompt_logprobs = static_cast<int32_t>(random() % 4) - 1;
      a.sink = std::make_unique<GatheringSink>(a.spec.choices);
      const auto id = engine->submit(a.spec, *a.sink);
      ASSERT_TRUE(id.ok());
      if (a.cancelled) engine->cancel(*id);
      all.push_back(std::move(a));
    }
    for (const Asked& a : all) {
      a.sink->wait();
      const auto got = std::ssize(a.sink->prompt_logprobs());
      const int32_t k = a.spec.sampling.prompt_logprobs;
      EXPECT_TRUE(a.sink->prompt_in_order());
      if (!a.cancelled) {
        EXPECT_EQ(got, k < 0 ? 0 : std::ssize(a.spec.prompt) - 1);
      }
      ASSERT_LT(got, std::ssize(a.spec.prompt));
      EXPECT_EQ(std::ssize(a.sink->prompt_top()), k < 0 ? 0 : got * k);
      for (std::ptrdiff_t i = 0; i < got; ++i)
        ASSERT_EQ(a.sink->prompt_logprobs()[static_cast<size_t>(i)], -static_cast<float>(a.spec.prompt[static_cast<size_t>(i) + 1]));
    }
    expect_idle(*engine);
    const sched::Metrics m = engine->metrics().scheduler;
    retracted += m.retractions_to_host + m.retractions_recomputed;
  }
  EXPECT_GT(retracted, 0);
}

// Answers from a thread of its own, after a while; a result may be a failure.
class SlowExecutor final : public CycleExecutor {
 public:
  SlowExecutor(const sched::MemorySizes& sizes, uint32_t seed) : device_(sizes, kVocabulary), random_(seed) {}
  ~SlowExecutor() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  void launch(const sched::Cycle& cycle, std::span<const BoundChoice>) override {
    CycleResult result;
    result.tokens = device_.run(cycle).tokens;
    result.failed = random_() % 50 == 0;
    result.error = "asked to";
    {
      const std::lock_guard lock(mutex_);
      running_.push_back({std::move(result), std::chrono::microseconds(random_() % 200)});
    }
    changed_.notify_one();
  }
  const CycleResult* poll() override {
    const std::lock_guard lock(mutex_);
    if (done_.empty()) return nullptr;
    current_ = std::move(done_.front());
    done_.pop_front();
    return &current_;
  }
  void on_result(std::function<void()> notify) override {
    notify_ = std::move(notify);
    thread_ = std::thread([this] { serve(); });
  }

 private:
  void serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopping_ || !running_.empty(); });
      if (running_.empty()) return;
      auto [result, time] = std::move(running_.front());
      running_.pop_front();
      lock.unlock();
      std::this_thread::sleep_for(time);
      lock.lock();
      done_.push_back(std::move(result));
      lock.unlock();
      notify_();
      lock.lock();
    }
  }

  sched::FakeDevice device_;
  std::mt19937 random_;
  std::function<void()> notify_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::deque<std::pair<CycleResult, std::chrono::microseconds>> running_;
  std::deque<CycleResult> done_;
  CycleResult current_;
  std::thread thread_;
};

TEST(Engine, GoesAtAnyMomentAndEverybodyHearsOfTheEnd) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 40; ++round) {
    const EngineOptions o = options_for(1 + static_cast<int32_t>(random() % 5), 12 + static_cast<int32_t>(random() % 20));
    std::vector<std::unique_ptr<GatheringSink>> sinks;
    std::vector<RequestSpec> specs;
    auto engine = std::move(*Engine::create(std::make_unique<SlowExecutor>(o.scheduler.memory, random()), o));
    for (int i = 0; i < 40; ++i) {
      RequestSpec spec;
      spec.prompt.assign(1 + random() % 200, static_cast<int32_t>(random() % 3));
      spec.choices = 1 + static_cast<int32_t>(random() % static_cast<uint32_t>(o.scheduler.memory.slots));
      spec.max_tokens = 1 + static_cast<int64_t>(random() % 100);
      spec.priority = static_cast<int32_t>(random() % 3);
      sinks.push_back(std::make_unique<GatheringSink>(spec.choices));
      specs.push_back(spec);
      const auto id = engine->submit(spec, *sinks.back());
      ASSERT_TRUE(id.ok());
      if (random() % 5 == 0) engine->cancel(*id);
      if (random() % 5 == 0) engine->stop(*id, static_cast<int32_t>(random() % 3));
      if (random() % 20 == 0) engine->flush_cache();
      if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
    }
    if (random() % 4 == 0) expect_idle(*engine);
    engine.reset();
    for (size_t i = 0; i < sinks.size(); ++i) {
      ASSERT_TRUE(sinks[i]->wait_for(std::chrono::milliseconds(0)));
      for (int32_t c = 0; c < specs[i].choices; ++c) {
        const GatheringSink::Choice& choice = sinks[i]->choices()[static_cast<size_t>(c)];
        EXPECT_EQ(choice.ends, 1);
        std::vector<int32_t> tokens = specs[i].prompt;
        for (const int32_t token : choice.tokens) {
          ASSERT_EQ(token, sched::next_token(tokens, c, kVocabulary)) << "request " << i << " choice " << c;
          tokens.push_back(token);
        }
      }
    }
  }
}

TEST(StepTimes, QuantilesAreGoodToThreePercent) {
  StepTimes t;
  for (int64_t i = 1; i <= 100'000; ++i) t.add(i * 10);
  EXPECT_NEAR(static_cast<double>(t.quantile(0.5)), 500'000, 500'000 * 0.032);
  EXPECT_NEAR(static_cast<double>(t.quantile(0.99)), 990'000, 990'000 * 0.032);
  EXPECT_EQ(t.quantile(1.0), 1'000'000);
  EXPECT_EQ(t.count(), 100'000);
}

}  // namespace
}  // namespace baton::engine
