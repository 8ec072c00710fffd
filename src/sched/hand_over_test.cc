// Prompts that are computed for somebody else, and prompts that somebody else has computed.
#include <gtest/gtest.h>

#include <map>

#include "sched/fake_device.h"

namespace baton::sched {
namespace {

constexpr int64_t kVocabulary = 1000;

SchedulerOptions small(int32_t pages, int32_t host) {
  SchedulerOptions o;
  o.memory = {.pages = pages, .slots = 3, .snapshots = 2, .host_pages = host * 10, .host_slots = host};
  o.context_tokens = 640;
  o.vocabulary = kVocabulary;
  o.prefill_tokens = 128;
  o.growth_tokens = 1;
  o.snapshot_tokens = 64;
  return o;
}

RequestSpec request(int64_t prompt, int64_t max_tokens, int32_t first) {
  RequestSpec s;
  for (int64_t i = 0; i < prompt; ++i) s.prompt.push_back(static_cast<int32_t>((first + i * 7) % kVocabulary));
  s.max_tokens = max_tokens;
  return s;
}

struct Loop {
  Scheduler& scheduler;
  FakeDevice& device;
  Cycle cycle;
  Time now = 0;
  bool step() {
    if (!scheduler.plan(++now, cycle)) return false;
    scheduler.complete(device.run(cycle));
    return true;
  }
};

TEST(HandOver, APromptAloneTellsHowFarItIsAndStaysUntilItIsLetGo) {
  const auto s = std::move(Scheduler::create(small(16, 0)).value());
  FakeDevice device(s->options().memory, kVocabulary);
  Loop loop{*s, device, {}};
  for (RequestId id = 1; id <= 2; ++id) {
    RequestSpec r = request(300, 1, 0);
    r.prompt_only = true;
    ASSERT_TRUE(s->submit(id, std::move(r), 0).ok());
    std::vector<int64_t> told;
    while (loop.step()) {
    }
    for (const Event& e : s->events()) {
      EXPECT_EQ(e.token, -1);
      EXPECT_EQ(e.reason, FinishReason::kNone);
      told.push_back(e.computed);
    }
    s->clear_events();
    EXPECT_EQ(told, id == 1 ? (std::vector<int64_t>{128, 256, 300}) : (std::vector<int64_t>{256, 300})) << "what is cached is told at once";
    const Scheduler::Holding h = s->holding(id);
    EXPECT_EQ(h.pages.size(), 5U);
    EXPECT_GE(h.slot, 0);
    EXPECT_EQ(h.cached_tokens, id == 1 ? 0 : 256);
    EXPECT_FALSE(s->idle());
    s->let_go(id);
    ASSERT_EQ(s->events().size(), 1U);
    EXPECT_EQ(s->events()[0].reason, FinishReason::kStop);
    EXPECT_TRUE(s->events()[0].last);
    s->clear_events();
    s->check_invariants();
    EXPECT_TRUE(s->idle());
    EXPECT_EQ(s->metrics().pages_held, 0);
  }
}

// With and without room on the host, and with too few pages for all of them to grow: what gives way before its first draw loses nothing.
TEST(HandOver, LandedPromptsDrawWhatTheyWouldHaveDrawnAtHome) {
  for (const int32_t host : {0, 3}) {
    const SchedulerOptions o = small(10, host);
    const auto s = std::move(Scheduler::create(o).value());
    FakeDevice device(o.memory, kVocabulary);
    Loop loop{*s, device, {}};
    std::map<RequestId, std::vector<int32_t>> got;
    for (RequestId id = 1; id <= 3; ++id) {
      const RequestSpec r = request(128, 200, static_cast<int32_t>(id) * 10);
      Scheduler::LandedPrompt landed;
      landed.pages.resize(2);
      Memory& m = s->memory();
      ASSERT_TRUE(m.take_pages(landed.pages));
      ASSERT_TRUE(m.slots.take({&landed.slot, 1}));
      s->check_invariants({.pages = 2, .slots = 1});
      device.receive(landed.slot, landed.pages, 0, r.prompt);
      s->land(id, r, std::move(landed), loop.now);
      if (id == 1) loop.step();
      s->check_invariants();
    }
    while (!s->idle()) {
      ASSERT_TRUE(loop.step());
      s->check_invariants();
      for (const Event& e : s->events())
        if (e.token >= 0) got[e.request].push_back(e.token);
      s->clear_events();
    }
    for (RequestId id = 1; id <= 3; ++id) {
      std::vector<int32_t> all = request(128, 1, static_cast<int32_t>(id) * 10).prompt;
      for (size_t i = 0; i < 200; ++i) {
        const int32_t next = next_token(all, 0, kVocabulary);
        ASSERT_EQ(got[id].at(i), next) << "request " << id << ", token " << i;
        all.push_back(next);
      }
    }
    EXPECT_GT(host > 0 ? s->metrics().retractions_to_host : s->metrics().retractions_recomputed, 0);
    EXPECT_EQ(s->metrics().pages_held, 0);
  }
}

// A slot comes with whatever ring was in it before, and with drafts the last row's page is completed by the first draw.
TEST(HandOver, ALandedPromptBringsItsRingAndTheTokenBehindItsLastRow) {
  SchedulerOptions o = small(16, 3);
  o.drafts = 3;
  o.look_ahead = 1;
  const auto s = std::move(Scheduler::create(o).value());
  FakeDevice device(o.memory, kVocabulary);
  device.look_ahead();
  device.draft(5);
  Loop loop{*s, device, {}};
  const RequestSpec r = request(128, 100, 10);
  Scheduler::LandedPrompt landed;
  landed.pages.resize(2);
  ASSERT_TRUE(s->memory().take_pages(landed.pages));
  ASSERT_TRUE(s->memory().slots.take({&landed.slot, 1}));
  device.receive(landed.slot, landed.pages, 0, r.prompt);
  const int32_t slot = landed.slot;
  s->land(1, r, std::move(landed), loop.now);
  ASSERT_TRUE(loop.step());
  ASSERT_EQ(loop.cycle.before.size(), 1U);
  EXPECT_EQ(loop.cycle.before[0].kind, MoveKind::kResetRing);
  EXPECT_EQ(loop.cycle.before[0].to, slot);
  std::vector<int32_t> all = r.prompt;
  while (!s->idle()) {
    ASSERT_TRUE(loop.step());
    s->check_invariants();
  }
  for (const Event& e : s->events()) {
    ASSERT_EQ(e.token, next_token(all, 0, kVocabulary));
    all.push_back(e.token);
  }
  EXPECT_EQ(all.size(), 228U);
}

// The scheduler does not hear of it when others give memory back to its pools, and must not wait for what has come.
TEST(HandOver, WhatOthersGiveBackLetsTheNextOneIn) {
  const auto s = std::move(Scheduler::create(small(10, 0)).value());
  FakeDevice device(s->options().memory, kVocabulary);
  Loop loop{*s, device, {}};
  std::vector<int32_t> others(9);
  ASSERT_TRUE(s->memory().take_pages(others));
  ASSERT_TRUE(s->submit(1, request(200, 1, 0), 0).ok());
  EXPECT_FALSE(loop.step());
  EXPECT_FALSE(loop.step());
  for (const int32_t page : others) s->memory().pages.release(page);
  EXPECT_TRUE(loop.step());
}

}  // namespace
}  // namespace baton::sched
