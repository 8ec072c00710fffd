#include "sched/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <limits>
#include <map>
#include <new>

#include "sched/fake_device.h"

namespace {
int64_t allocations = 0;
}

// Counts what this program allocates. Not inlined: GCC would take the free() for a mistake.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  void* p = std::malloc(bytes);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace baton::sched {
namespace {

constexpr int64_t kVocabulary = 1000;

SchedulerOptions options_for(int32_t slots, int32_t pages, int64_t context) {
  SchedulerOptions o;
  o.memory = {.pages = pages, .slots = slots, .snapshots = 4, .host_pages = 0, .host_slots = 0};
  o.context_tokens = context;
  o.vocabulary = kVocabulary;
  o.prefill_tokens = 256;
  o.growth_tokens = 64;
  return o;
}

std::unique_ptr<Scheduler> make(const SchedulerOptions& o) {
  auto s = Scheduler::create(o);
  EXPECT_TRUE(s.ok());
  return std::move(*s);
}

RequestSpec request(int64_t prompt, int64_t max_tokens, int32_t first = 0) {
  RequestSpec s;
  for (int64_t i = 0; i < prompt; ++i) s.prompt.push_back(static_cast<int32_t>((first + i * 7) % kVocabulary));
  s.max_tokens = max_tokens;
  return s;
}

// Plans and completes at once; every draw gives token 5.
struct Loop {
  Scheduler& scheduler;
  Cycle cycle;
  std::vector<int32_t> drawn;
  Time now = 0;

  bool step() {
    if (!scheduler.plan(++now, cycle)) return false;
    drawn.assign(cycle.draws.size(), 5);
    scheduler.complete(drawn);
    return true;
  }
};

TEST(Scheduler, AllocatesNothingPerStepInSteadyState) {
  constexpr int32_t kSlots = 64;
  const auto s = make(options_for(kSlots, kSlots * 64, 4096));
  for (int32_t i = 0; i < kSlots; ++i) {
    RequestSpec r = request(100 + i, 3000, i);
    r.stop_tokens = {7, 8};
    ASSERT_TRUE(s->submit(static_cast<RequestId>(i), std::move(r), 0).ok());
  }
  Loop loop{*s, {}, {}};
  for (int i = 0; i < 200; ++i) {  // prompts, and the first growth of every vector
    loop.step();
    s->clear_events();
  }
  ASSERT_EQ(s->metrics().decoding, kSlots);
  const int64_t before = allocations;
  for (int i = 0; i < 1500; ++i) {  // every sequence fills 23 pages, which enter the tree, and grows 23 times
    loop.step();
    s->clear_events();
  }
  EXPECT_EQ(allocations, before);
  EXPECT_GT(s->metrics().pages_cached, kSlots * 20);
}

// A conversation: each turn's prompt is all that was said before, and something new.
TEST(Scheduler, TheNextTurnStartsBehindTheLastAnswer) {
  SchedulerOptions o = options_for(4, 400, 8000);
  o.memory.snapshots = 8;
  const auto s = make(o);
  Loop loop{*s, {}, {}};
  RequestSpec turn = request(300, 500);
  int64_t cached = -1;
  for (RequestId id = 1; id <= 4; ++id) {
    const auto before = std::ssize(turn.prompt);
    ASSERT_TRUE(s->submit(id, turn, 0).ok());
    while (loop.step()) {
      for (const Event& e : s->events()) {
        turn.prompt.push_back(e.token);
        cached = e.usage.cached_tokens;
      }
      s->clear_events();
      s->check_invariants();
    }
    // The answer before this one had 500 tokens, of which the last was never computed; then came 20 new ones.
    EXPECT_EQ(cached, id == 1 ? 0 : (before - 20 - 1) / cache::kPageUnits * cache::kPageUnits);
    EXPECT_EQ(s->metrics().snapshots_cached, static_cast<int64_t>(id) + 1) << "behind the first prompt and behind each answer";
    for (int32_t i = 0; i < 20; ++i) turn.prompt.push_back(100 + i);
  }
}

TEST(Scheduler, ADeadlineGoesWithItsRequest) {
  const auto s = make(options_for(2, 20, 640));
  Loop loop{*s, {}, {}};
  for (RequestId id = 1; id <= 3; ++id) {
    RequestSpec r = request(10, id == 2 ? 500 : 3);
    r.deadline = 1000 * static_cast<Time>(id);
    r.choices = id == 3 ? 2 : 1;
    ASSERT_TRUE(s->submit(id, std::move(r), 0).ok());
  }
  EXPECT_EQ(s->next_deadline(), 1000);
  for (int i = 0; i < 20; ++i) loop.step();
  EXPECT_EQ(s->next_deadline(), 2000) << "the first request is over";
  s->cancel(2);
  for (int i = 0; i < 20; ++i) loop.step();
  EXPECT_EQ(s->next_deadline(), kNever);
}

TEST(Scheduler, WhatIsGeneratedTakesHalfOfTheSnapshotsAtMost) {
  SchedulerOptions o = options_for(8, 400, 4000);
  o.memory.snapshots = 6;
  const auto s = make(o);
  Loop loop{*s, {}, {}};
  ASSERT_TRUE(s->submit(1, request(1000, 1), 0).ok());
  while (loop.step()) {
  }
  const int64_t prompts = s->metrics().snapshots_cached;
  ASSERT_GE(prompts, 2);
  for (RequestId id = 2; id <= 9; ++id) ASSERT_TRUE(s->submit(id, request(3, 1000, static_cast<int32_t>(id) * 50), 0).ok());
  while (loop.step()) s->clear_events();
  EXPECT_EQ(s->metrics().snapshots_cached, std::min<int64_t>(6, prompts + 3));
  ASSERT_TRUE(s->submit(20, request(1000, 1), 0).ok());
  s->clear_events();
  while (loop.step()) {
  }
  EXPECT_GT(s->events().back().usage.cached_tokens, 0) << "the first prompt's states are still there";
}

TEST(Scheduler, AShortPromptIsNotStuckBehindALongOne) {
  const auto s = make(options_for(4, 400, 16'000));
  ASSERT_TRUE(s->submit(1, request(10'000, 4), 0).ok());
  Loop loop{*s, {}, {}};
  loop.step();
  ASSERT_TRUE(s->submit(2, request(100, 4, 3), 0).ok());
  loop.step();
  EXPECT_EQ(s->metrics().decoding, 1) << "the short prompt fits beside the long one's half of the budget";
  int cycles = 2;
  while (s->metrics().prefilling > 0 && loop.step()) ++cycles;
  EXPECT_LE(cycles, 10'000 / 256 + 3) << "and the long one hardly noticed";
}

TEST(Scheduler, ManyShortPromptsDoNotStopALongOne) {
  const auto s = make(options_for(8, 400, 16'000));
  ASSERT_TRUE(s->submit(1, request(4000, 1), 0).ok());
  Loop loop{*s, {}, {}};
  RequestId next = 2;
  int cycles = 0;
  bool over = false;
  while (!over && cycles < 100) {
    for (int i = 0; i < 4; ++i, ++next) ASSERT_TRUE(s->submit(next, request(120, 1, static_cast<int32_t>(next)), 0).ok());
    loop.step();
    ++cycles;
    for (const Event& e : s->events()) over = over || e.request == 1;
    s->clear_events();
  }
  EXPECT_LE(cycles, 4000 / 128 + 2) << "half of every cycle's budget is the oldest prompt's";
}

TEST(Scheduler, UnsetMaxTokensStarvesNobody) {
  // Reserving everybody's whole context would let one request in at a time.
  const auto s = make(options_for(8, 32, 64 * 32));
  for (RequestId i = 0; i < 8; ++i) ASSERT_TRUE(s->submit(i, request(60, kUnlimited, static_cast<int32_t>(i)), 0).ok());
  Loop loop{*s, {}, {}};
  for (int i = 0; i < 4; ++i) loop.step();
  EXPECT_EQ(s->metrics().decoding + s->metrics().prefilling, 8);
  std::map<RequestId, int64_t> generated;
  for (int i = 0; i < 20'000 && !s->idle(); ++i) {
    loop.step();
    for (const Event& e : s->events())
      if (e.token >= 0) ++generated[e.request];
    s->clear_events();
  }
  EXPECT_TRUE(s->idle());
  for (RequestId i = 0; i < 8; ++i) EXPECT_EQ(generated[i], 64 * 32 - 60) << "request " << i;
}

TEST(Scheduler, ServesInOrderOfArrivalWithinAPriority) {
  const auto s = make(options_for(1, 8, 256));
  for (RequestId i = 0; i < 6; ++i) {
    RequestSpec r = request(10, 2);
    r.priority = i >= 4 ? 1 : 0;
    ASSERT_TRUE(s->submit(i, std::move(r), 0).ok());
  }
  Loop loop{*s, {}, {}};
  std::vector<RequestId> order;
  while (loop.step()) {
  }
  for (const Event& e : s->events())
    if (e.last) order.push_back(e.request);
  EXPECT_EQ(order, (std::vector<RequestId>{4, 5, 0, 1, 2, 3}));
}

TEST(Scheduler, AFullQueueRefusesAndForgets) {
  SchedulerOptions o = options_for(1, 8, 256);
  o.max_waiting = 3;
  const auto s = make(o);
  for (RequestId i = 0; i < 3; ++i) EXPECT_TRUE(s->submit(i, request(10, 2), 0).ok());
  const Status refused = s->submit(9, request(10, 2), 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, Error::Kind::kExhausted);
  EXPECT_EQ(s->find(9), nullptr);
  EXPECT_EQ(s->metrics().waiting, 3);
  EXPECT_EQ(s->metrics().refused, 1);
}

TEST(Scheduler, WhatHasEndedIsReleasedAfterItsLastLaunchedCycle) {
  const auto s = make(options_for(1, 8, 256));
  RequestSpec r = request(10, 50);
  r.stop_tokens = {5};
  ASSERT_TRUE(s->submit(1, std::move(r), 0).ok());
  Cycle first, second;
  ASSERT_TRUE(s->plan(1, first));
  ASSERT_TRUE(s->plan(2, second)) << "the next cycle is planned before the first one's result";
  ASSERT_EQ(second.rows.size(), 1U);
  EXPECT_EQ(second.rows[0].ids_begin, kDrawnToken);
  s->complete(std::vector<int32_t>{5});
  ASSERT_EQ(s->events().size(), 1U);
  EXPECT_EQ(s->events()[0].reason, FinishReason::kStop);
  EXPECT_TRUE(s->events()[0].last);
  EXPECT_EQ(s->metrics().slots_free, 0) << "the second cycle still writes into the slot";
  EXPECT_GT(s->metrics().pages_held, 0);
  s->clear_events();
  s->complete(std::vector<int32_t>{9});
  EXPECT_TRUE(s->events().empty()) << "what was drawn after the end exists for nobody";
  EXPECT_EQ(s->metrics().slots_free, 1);
  EXPECT_EQ(s->metrics().pages_held, 0);
}

TEST(Scheduler, RetractionTakesTheLastInOrderAndItComesBackFirst) {
  SchedulerOptions o = options_for(3, 10, 640);
  o.memory.host_pages = 10;
  o.memory.host_slots = 3;
  o.growth_tokens = 16;
  const auto s = make(o);
  FakeDevice device(o.memory, kVocabulary);
  for (RequestId i = 0; i < 3; ++i) ASSERT_TRUE(s->submit(i, request(60, 300, static_cast<int32_t>(i * 100)), 0).ok());
  std::vector<RequestId> order;
  Cycle cycle;
  Time now = 0;
  int64_t retracted = 0;
  while (!s->idle() && now < 5000) {
    ASSERT_TRUE(s->plan(++now, cycle));
    for (const Move& m : cycle.before) retracted += m.kind == MoveKind::kSlotToHost ? 1 : 0;
    s->complete(device.run(cycle));
    s->check_invariants();
    for (const Event& e : s->events())
      if (e.last) order.push_back(e.request);
    s->clear_events();
  }
  EXPECT_EQ(order, (std::vector<RequestId>{0, 1, 2}));
  EXPECT_GT(retracted, 0);
  EXPECT_EQ(s->metrics().retractions_recomputed, 0);
}

TEST(Scheduler, ChoicesThatAwaitTheirForkDoNotMakeThoseBeforeThemGiveWay) {
  SchedulerOptions o = options_for(3, 11, 640);
  o.growth_tokens = 1;
  o.prefill_tokens = 4;
  o.memory.snapshots = 0;
  const auto s = make(o);
  FakeDevice device(o.memory, kVocabulary);
  ASSERT_TRUE(s->submit(1, request(60, 300), 0).ok());
  RequestSpec group = request(500, 20, 100);
  group.choices = 2;
  ASSERT_TRUE(s->submit(2, std::move(group), 0).ok());
  Cycle cycle;
  bool forked = false;
  for (Time now = 1; !s->idle() && now < 5000; ++now) {
    ASSERT_TRUE(s->plan(now, cycle));
    s->complete(device.run(cycle));
    s->check_invariants();
    for (const Event& e : s->events()) forked = forked || e.request == 2;
    s->clear_events();
    if (!forked) {
      ASSERT_EQ(s->metrics().retracted, 0) << "the first in order gave way to a prompt behind it";
    }
  }
  EXPECT_TRUE(s->idle());
  EXPECT_GT(s->metrics().stalled_rows, 0) << "there was a page too few";
  EXPECT_EQ(s->metrics().completed, 2);
}

TEST(Scheduler, WhatRunsOnAFailedCycleLeavesNothingInTheCache) {
  SchedulerOptions o = options_for(2, 16, 640);
  o.snapshot_tokens = 64;
  o.prefill_tokens = 64;
  const auto s = make(o);
  FakeDevice device(o.memory, kVocabulary);
  ASSERT_TRUE(s->submit(1, request(300, 20), 0).ok());
  Cycle cycle;
  for (Time now = 1; now <= 2; ++now) {  // a page that stays leased while the next two cycles run
    ASSERT_TRUE(s->plan(now, cycle));
    if (now == 1) s->complete(device.run(cycle));
  }
  ASSERT_EQ(s->metrics().pages_cached, 1);
  device.run(cycle);
  ASSERT_TRUE(s->plan(3, cycle));
  const FakeDevice::Outcome drawn = device.run(cycle);
  device.spoil();
  s->fail();
  ASSERT_TRUE(s->submit(2, request(300, 20), 3).ok());
  EXPECT_FALSE(s->plan(4, cycle)) << "nobody enters before the last cycle of the failed ones is done";
  s->complete(drawn);
  s->check_invariants();
  EXPECT_EQ(s->metrics().pages_cached + s->metrics().snapshots_cached, 0);
  EXPECT_EQ(s->metrics().failed, 1);
  s->clear_events();
  for (Time now = 5; !s->idle(); ++now) {
    ASSERT_TRUE(s->plan(now, cycle));
    s->complete(device.run(cycle));
  }
  EXPECT_EQ(s->metrics().tokens_matched_state, 0);
  EXPECT_EQ(s->metrics().completed, 1);
}

TEST(Scheduler, LookingAheadAPageIsSharedOnlyWhereTheTokenBehindItIsTheSame) {
  SchedulerOptions o = options_for(1, 32, 640);
  o.look_ahead = 1;
  const auto s = make(o);
  Loop loop{*s, {}, {}};
  const auto matched = [&](RequestId id, int64_t same) {
    RequestSpec r = request(210, 1);
    for (size_t i = static_cast<size_t>(same); i < r.prompt.size(); ++i) r.prompt[i] = static_cast<int32_t>(id);
    EXPECT_TRUE(s->submit(id, std::move(r), 0).ok());
    const int64_t before = s->metrics().tokens_matched_kv;
    while (loop.step()) {
    }
    return s->metrics().tokens_matched_kv - before;
  };
  EXPECT_EQ(matched(1, 210), 0);
  EXPECT_EQ(matched(2, 210), 192) << "three pages are cached, and what is behind the third is the same";
  EXPECT_EQ(matched(3, 128), 64) << "two are the same, and what follows is not";
  EXPECT_EQ(matched(4, 129), 128);
  EXPECT_EQ(matched(5, 0), 0) << "nothing is the same, not even the first token";
}

TEST(Scheduler, ImpossibleRequestsAreRefusedByField) {
  const SchedulerOptions o = options_for(2, 16, 640);
  const auto refusal = [&o](const auto& change) {
    RequestSpec r = request(10, 20);
    change(r);
    const Status s = Scheduler::check(r, o);
    return s.ok() ? std::string("taken") : s.error().message;
  };
  const float kNan = std::numeric_limits<float>::quiet_NaN();
  const float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(refusal([](RequestSpec&) {}), "taken");
  EXPECT_EQ(refusal([kInfinity](RequestSpec& r) { r.sampling.logit_bias = {{0, -kInfinity}, {kVocabulary - 1, 100.0F}}; }), "taken");
  EXPECT_EQ(refusal([](RequestSpec& r) { r.max_tokens = std::numeric_limits<int64_t>::max(); }).substr(0, 10), "max_tokens");
  for (const float t : {-1.0F, kNan, kInfinity})
    EXPECT_EQ(refusal([t](RequestSpec& r) { r.sampling.temperature = t; }).substr(0, 11), "temperature");
  for (const float p : {0.0F, 1.5F, kNan}) EXPECT_EQ(refusal([p](RequestSpec& r) { r.sampling.top_p = p; }).substr(0, 5), "top_p");
  EXPECT_EQ(refusal([](RequestSpec& r) { r.sampling.top_k = -1; }).substr(0, 5), "top_k");
  EXPECT_EQ(refusal([kNan](RequestSpec& r) { r.sampling.min_p = kNan; }).substr(0, 5), "min_p");
  for (const float p : {0.0F, -1.0F, kNan, kInfinity})
    EXPECT_EQ(refusal([p](RequestSpec& r) { r.sampling.repetition_penalty = p; }).substr(0, 18), "repetition_penalty");
  EXPECT_EQ(refusal([kNan](RequestSpec& r) { r.sampling.frequency_penalty = kNan; }).substr(0, 17), "frequency_penalty");
  EXPECT_EQ(refusal([kInfinity](RequestSpec& r) { r.sampling.presence_penalty = kInfinity; }).substr(0, 16), "presence_penalty");
  for (const int32_t k : {-2, static_cast<int32_t>(kVocabulary) + 1, std::numeric_limits<int32_t>::max()})
    EXPECT_EQ(refusal([k](RequestSpec& r) { r.sampling.logprobs = k; }).substr(0, 8), "logprobs");
  for (const int32_t t : {-1, static_cast<int32_t>(kVocabulary)})
    EXPECT_EQ(refusal([t](RequestSpec& r) { r.sampling.logit_bias = {{t, 1.0F}}; }).substr(0, 10), "logit_bias");
  EXPECT_EQ(refusal([kNan](RequestSpec& r) { r.sampling.logit_bias = {{1, kNan}}; }).substr(0, 10), "logit_bias");
}

TEST(Scheduler, ImpossibleOptionsAreRefused) {
  SchedulerOptions o = options_for(1, 3, 256);
  const auto small = Scheduler::create(o);
  ASSERT_FALSE(small.ok());
  EXPECT_NE(small.error().message.find("3 pages of 64 tokens do not hold one sequence of 256"), std::string::npos);
  o = options_for(0, 8, 256);
  EXPECT_FALSE(Scheduler::create(o).ok());
}

}  // namespace
}  // namespace baton::sched
