// Random requests, cancellations, stops, deadlines and failures on a scheduler with too little of everything, against what each request
// should have got had it been alone.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <random>

#include "base/test_seed.h"
#include "sched/fake_device.h"

namespace baton::sched {
namespace {

constexpr int64_t kVocabulary = 40;

std::vector<int32_t> expected_tokens(const RequestSpec& spec, int32_t choice, int64_t context) {
  std::vector<int32_t> tokens = spec.prompt;
  const auto prompt = static_cast<int64_t>(spec.prompt.size());
  const int64_t most = spec.max_tokens == kUnlimited ? context - prompt : std::min(spec.max_tokens, context - prompt);
  std::vector<int32_t> out;
  while (static_cast<int64_t>(out.size()) < most) {
    out.push_back(next_token(tokens, choice, kVocabulary));
    tokens.push_back(out.back());
    if (static_cast<int64_t>(out.size()) > spec.min_tokens &&
        std::find(spec.stop_tokens.begin(), spec.stop_tokens.end(), out.back()) != spec.stop_tokens.end())
      break;
  }
  return out;
}

class World {
 public:
  World(const SchedulerOptions& options, uint32_t seed)
      : options_(options), scheduler_(std::move(Scheduler::create(options).value())), device_(options.memory, kVocabulary), random_(seed) {
    device_.draft(seed);
    if (options.look_ahead > 0) device_.look_ahead();
  }

  void step() {
    now_ += 1 + random_() % 3;
    switch (random_() % 16) {
      case 0:
      case 1: submit(); break;
      case 2:
        if (random_() % 16 == 0) cancel();
        break;
      case 3:
        if (random_() % 16 == 0) stop();
        break;
      case 4:
        if (random_() % 400 == 0 && !launched_.empty()) fail();
        break;
      case 5:
        if (random_() % 100 == 0) scheduler_->flush_cache();
        break;
      case 6:
      case 7:
      case 8:
      case 9:
      case 10:
        if (!launched_.empty()) complete();
        break;
      default: plan();
    }
    take_events();
    ++steps_;
  }

  void drain() {
    for (int64_t rounds = 0; !scheduler_->idle(); ++rounds) {
      ASSERT_LT(rounds, 200'000) << "it does not come to an end";
      now_ += 1;
      if (scheduler_->in_flight() < kCyclesInFlight && random_() % 3 != 0) plan();
      if (!launched_.empty() && random_() % 3 != 0) complete();
      take_events();
    }
    const Metrics& m = scheduler_->metrics();
    EXPECT_EQ(m.waiting + m.retracted + m.prefilling + m.decoding + m.draining, 0);
    EXPECT_EQ(m.pages_held, 0);
    EXPECT_EQ(m.pages_free + m.pages_cached, m.pages);
    EXPECT_EQ(m.slots_free, m.slots);
    EXPECT_EQ(m.snapshots_held, 0);
    EXPECT_EQ(m.host_slots_free, m.host_slots);
    EXPECT_EQ(m.host_pages_free, m.host_pages);
    EXPECT_EQ(m.submitted, m.completed + m.cancelled + m.expired + m.failed);
    scheduler_->flush_cache();
    scheduler_->check_invariants();
    for (const auto& [id, request] : requests_)
      for (const Choice& c : request.choices) EXPECT_EQ(c.ends, 1) << "request " << id;
  }

  void check() const { scheduler_->check_invariants(); }
  const Metrics& metrics() const { return scheduler_->metrics(); }

 private:
  struct Choice {
    std::vector<int32_t> got;
    int ends = 0;
  };
  struct Known {
    RequestSpec spec;
    std::vector<Choice> choices;
    int over = 0;
  };

  void submit() {
    RequestSpec spec;
    // Prompts share beginnings: a few stems, cut and continued at random.
    const auto stem = static_cast<int32_t>(random_() % 4);
    const size_t length = 1 + random_() % (random_() % 4 == 0 ? 500 : 100);
    for (size_t i = 0; i < length; ++i)
      spec.prompt.push_back(static_cast<int32_t>((static_cast<size_t>(stem) * 7 + i * i) % static_cast<size_t>(kVocabulary)));
    if (random_() % 2 == 0)
      for (size_t i = random_() % length; i < length; ++i) spec.prompt[i] = static_cast<int32_t>(random_() % kVocabulary);
    const auto room = options_.context_tokens - static_cast<int64_t>(length);
    if (random_() % 3 != 0) spec.max_tokens = 1 + static_cast<int64_t>(random_() % static_cast<uint64_t>(std::min<int64_t>(room, 400)));
    if (random_() % 4 == 0) spec.stop_tokens = {static_cast<int32_t>(random_() % kVocabulary)};
    if (spec.max_tokens == kUnlimited) spec.stop_tokens = {1, 2};
    if (random_() % 4 == 0) spec.min_tokens = std::min<int64_t>(spec.max_tokens == kUnlimited ? 20 : spec.max_tokens, 5);
    if (random_() % 5 == 0) spec.choices = 1 + static_cast<int32_t>(random_() % static_cast<uint64_t>(options_.memory.slots));
    spec.priority = static_cast<int32_t>(random_() % 3) / 2;
    spec.salt = random_() % 8 == 0 ? 1 : 0;
    spec.cache_prompt = random_() % 6 != 0;
    if (random_() % 5 == 0) spec.sampling.prompt_logprobs = 2;
    spec.sampling.presence_penalty = random_() % 4 == 0 ? 1.0F : 0.0F;
    if (random_() % 10 == 0) spec.deadline = now_ + static_cast<Time>(random_() % 2000);
    const RequestId id = next_++;
    ASSERT_TRUE(Scheduler::check(spec, options_).ok());
    if (!scheduler_->submit(id, spec, now_).ok()) return;
    Known& k = requests_[id];
    k.choices.resize(static_cast<size_t>(spec.choices));
    k.spec = std::move(spec);
    live_.push_back(id);
  }
  RequestId any() { return live_[random_() % live_.size()]; }
  void cancel() {
    if (!live_.empty()) scheduler_->cancel(any());
  }
  void stop() {
    if (!live_.empty()) scheduler_->stop(any(), static_cast<int32_t>(random_() % 3));
  }
  // Cycles that are launched already ran, and left something behind, too.
  void fail() {
    launched_.pop_front();
    device_.spoil();
    scheduler_->fail();
  }
  void plan() {
    if (scheduler_->in_flight() == kCyclesInFlight) return;
    Cycle cycle;
    if (!scheduler_->plan(now_, cycle)) return;
    launched_.push_back(device_.run(cycle));
  }
  void complete() {
    scheduler_->complete(launched_.front());
    launched_.pop_front();
  }

  void take_events() {
    for (const Event& e : scheduler_->events()) {
      Known& k = requests_.at(e.request);
      Choice& c = k.choices.at(static_cast<size_t>(e.choice));
      ASSERT_EQ(c.ends, 0) << "an event behind the last one";
      if (e.token >= 0) c.got.push_back(e.token);
      if (e.score >= 0) {
        ASSERT_TRUE(c.got.empty()) << "log-probabilities of the prompt behind a token";
      }
      EXPECT_LT(e.usage.cached_tokens, e.usage.prompt_tokens);
      if (e.reason == FinishReason::kNone) continue;
      ++c.ends;
      EXPECT_EQ(e.usage.generated_tokens, static_cast<int64_t>(c.got.size()));
      const std::vector<int32_t> all = expected_tokens(k.spec, e.choice, options_.context_tokens);
      const bool whole = (e.reason == FinishReason::kStop && e.token >= 0) || e.reason == FinishReason::kLength;
      const auto end = whole ? all.end() : all.begin() + std::min<std::ptrdiff_t>(std::ssize(all), std::ssize(c.got));
      ASSERT_EQ(c.got, std::vector<int32_t>(all.begin(), end)) << "request " << e.request << " choice " << e.choice;
      if (e.last) {
        EXPECT_EQ(++k.over, 1);
        std::erase(live_, e.request);
      }
    }
    scheduler_->clear_events();
  }

  SchedulerOptions options_;
  std::unique_ptr<Scheduler> scheduler_;
  FakeDevice device_;
  std::mt19937_64 random_;
  std::map<RequestId, Known> requests_;
  std::vector<RequestId> live_;
  std::deque<FakeDevice::Outcome> launched_;  // results in waiting
  RequestId next_ = 1;
  Time now_ = 0;
  int64_t steps_ = 0;
};

SchedulerOptions narrow(uint64_t variant) {
  SchedulerOptions o;
  o.context_tokens = 64 * 10 + static_cast<int64_t>(variant % 3) * 21;
  o.memory = {.pages = 14 + static_cast<int32_t>(variant % 5) * 5,
              .slots = 2 + static_cast<int32_t>(variant % 4) * 2,
              .snapshots = static_cast<int32_t>(variant % 3) * 3,
              .host_pages = static_cast<int32_t>(variant % 2) * 20,
              .host_slots = static_cast<int32_t>(variant % 2) * 3};
  o.vocabulary = kVocabulary;
  o.prefill_tokens = variant % 4 == 0 ? 7 : 64 * (1 + static_cast<int64_t>(variant % 7));
  o.growth_tokens = 1 + static_cast<int64_t>(variant % 5) * 40;
  o.snapshot_tokens = variant % 3 == 1 ? 64 : 130;
  o.max_waiting = 20;
  o.cache_generated = variant % 5 != 1;
  o.look_ahead = variant % 3 == 2 ? 1 : 0;
  o.drafts = variant % 2 == 1 ? static_cast<int32_t>(variant % 8) : 0;
  o.adaptive_drafts = variant % 7 == 3;
  return o;
}

// BATON_STEPS sets the number of random operations of all variants together; the default takes seconds.
TEST(SchedulerProperty, RandomRequestsGetWhatTheyWouldGetAlone) {
  const char* wanted = std::getenv("BATON_STEPS");
  const int64_t steps = wanted != nullptr ? std::atoll(wanted) : 60'000;
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
  constexpr uint64_t kVariants = 30;
  int64_t retracted = 0, recomputed = 0, forks = 0, shots = 0, completed = 0, matched = 0, accepted = 0;
  for (uint64_t v = 0; v < kVariants; ++v) {
    SCOPED_TRACE(::testing::Message() << "variant " << v);
    World world(narrow(v), seed + static_cast<uint32_t>(v));
    for (int64_t i = 0; i < steps / static_cast<int64_t>(kVariants); ++i) {
      world.step();
      world.check();
      if (::testing::Test::HasFailure()) return;
    }
    world.drain();
    const Metrics& m = world.metrics();
    retracted += m.retractions_to_host;
    recomputed += m.retractions_recomputed;
    forks += m.forks;
    shots += m.snapshots_taken;
    completed += m.completed;
    matched += m.tokens_matched_state;
    accepted += m.speculation.accepted;
    if (::testing::Test::HasFailure()) return;
  }
  // The rare paths were taken.
  for (const int64_t count : {retracted, recomputed, forks, shots, completed, matched, accepted}) EXPECT_GT(count, 0);
  std::printf("completed %ld, retracted to host %ld, recomputed %ld, forks %ld, snapshots %ld, tokens matched %ld\n", completed, retracted,
              recomputed, forks, shots, matched);
}

}  // namespace
}  // namespace baton::sched
