// Both ends against each other, with messages, writes and checks delivered by hand.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <numeric>

#include "pd/decode_end.h"
#include "pd/prefill_end.h"

namespace baton::pd {
namespace {

constexpr InstanceId kDecode = 1, kPrefill = 2;
constexpr Time kSecond = 1'000'000'000;

Tokens tokens(int64_t count, int32_t first = 0) {
  auto t = std::make_shared<std::vector<int32_t>>(static_cast<size_t>(count));
  std::iota(t->begin(), t->end(), first);
  return t;
}

// A prefill process whose jobs take a step when they are told to. Its sequence's page i is page 100 + i, its slot 9.
struct Prefill {
  explicit Prefill(Epoch epoch, int32_t credits = 2) : end({.self = {kPrefill, epoch}, .credits = credits, .context_tokens = 1000}) {}
  PrefillEnd end;
  std::map<JobId, Tokens> running;
  std::vector<Write> writes;
  std::vector<JobId> stopped;

  void compute(JobId job, int64_t to) {
    std::vector<int32_t> pages(static_cast<size_t>((to + 63) / 64));
    std::iota(pages.begin(), pages.end(), 100);
    end.computed(job, to, 0, pages, 9);
  }
  static uint64_t checksum(const Write& w) { return static_cast<uint64_t>(w.notice.part) * 7 + static_cast<uint64_t>(w.notice.ticket); }
};

struct Pair {
  explicit Pair(int32_t pages = 16, int32_t slots = 4)
      : page_pool(pages), slot_pool(slots), tree(page_pool), zone(page_pool, slot_pool, tree),
        decode({.self = {kDecode, 1}, .slots = slots, .most_waiting = 4}, zone), prefill(std::make_unique<Prefill>(1)) {
    decode.add_prefill(kPrefill);
    settle();
  }

  // Delivers everything that is said, and notes what is to be done.
  void settle() {
    decode.advance(now, 0, true);
    prefill->end.advance(now);
    for (bool quiet = false; !quiet;) {
      quiet = true;
      const std::vector<DecodeAction> from_decode(std::make_move_iterator(decode.actions().begin()),
                                                  std::make_move_iterator(decode.actions().end()));
      decode.clear_actions();
      for (const DecodeAction& a : from_decode) {
        quiet = false;
        if (const auto* m = std::get_if<Send>(&a); m != nullptr && !cut) prefill->end.receive(m->envelope, now);
        if (const auto* v = std::get_if<Verify>(&a)) {
          std::vector<uint64_t> sums;
          for (size_t i = 0; i < v->parts.size(); ++i) sums.push_back(i * 7 + v->ticket + (spoilt ? 1 : 0));
          checked.push_back(*v);
          decode.verified(v->ticket, v->landing, sums, now);
        }
        if (const auto* l = std::get_if<Landed>(&a)) landed.push_back(*l);
        if (const auto* e = std::get_if<Ended>(&a)) ended[e->request].push_back(e->reason);
      }
      const std::vector<PrefillAction> from_prefill(std::make_move_iterator(prefill->end.actions().begin()),
                                                    std::make_move_iterator(prefill->end.actions().end()));
      prefill->end.clear_actions();
      for (const PrefillAction& a : from_prefill) {
        quiet = false;
        if (const auto* m = std::get_if<SendReply>(&a); m != nullptr && !cut) decode.receive(m->envelope, now);
        if (const auto* s = std::get_if<StartJob>(&a)) prefill->running[s->job] = s->tokens;
        if (const auto* s = std::get_if<StopJob>(&a)) prefill->stopped.push_back(s->job);
        if (const auto* w = std::get_if<Write>(&a)) prefill->writes.push_back(*w);
      }
      if (!from_prefill.empty()) decode.advance(now, 0, true);
    }
    decode.check_invariants();
    prefill->end.check_invariants();
    tree.check_invariants();
  }
  void wait(Time t) {
    now += t;
    settle();
  }
  // The oldest write that is posted arrives.
  void land(bool ok = true) {
    const Write w = prefill->writes.front();
    prefill->writes.erase(prefill->writes.begin());
    if (ok && !cut) decode.receive({{kPrefill, epoch}, {kDecode, 1}, 0, w.notice}, now);
    prefill->end.written(w.job, w.notice.part, ok, Prefill::checksum(w));
    settle();
  }
  void land_all() {
    while (!prefill->writes.empty()) land();
  }
  void restart_prefill() {
    prefill = std::make_unique<Prefill>(++epoch);
    settle();
  }
  void submit(RequestKey key, Tokens t, Time deadline = kNever) {
    ASSERT_TRUE(decode.submit(key, {.tokens = std::move(t), .deadline = deadline}, now).ok());
    settle();
  }
  int32_t held() const { return page_pool.held_count(); }

  cache::IdPool page_pool;
  cache::IdPool slot_pool;
  cache::PrefixTree tree;
  LandingZone zone;
  DecodeEnd decode;
  std::unique_ptr<Prefill> prefill;
  Epoch epoch = 1;
  Time now = kSecond;
  bool cut = false, spoilt = false;
  std::vector<Verify> checked;
  std::vector<Landed> landed;
  std::map<RequestKey, std::vector<EndReason>> ended;
};

// Before that what its open orders matched stayed locked in a tree that was to be emptied.
TEST(HandOver, WhenDecodesDeviceFailsItsOrdersAreMadeAnewAndNoLeaseIsLeft) {
  Pair p;
  p.submit(1, tokens(128));
  p.prefill->compute(1, 128);
  p.settle();
  p.land_all();
  ASSERT_EQ(p.landed.size(), 1U);
  p.zone.release(p.landed[0].landing);
  p.submit(2, tokens(200));  // in the middle of its parts
  ASSERT_EQ(p.tree.locked_count(), 1);
  p.prefill->compute(2, 200);
  p.settle();
  p.decode.device_failed(p.now);
  EXPECT_EQ(p.tree.locked_count(), 0);
  EXPECT_EQ(p.tree.evict(100, [](cache::Node) {}), 2);
  EXPECT_EQ(p.decode.metrics().quarantined, 1);
  EXPECT_EQ(p.held(), 2) << "its writes may still land";
  p.settle();
  p.land_all();
  EXPECT_EQ(p.decode.metrics().quarantined, 0);
  ASSERT_EQ(p.prefill->running.size(), 3U) << "the same prompt, and nothing of it is there";
  p.prefill->compute(3, 200);
  p.settle();
  p.land_all();
  ASSERT_EQ(p.landed.size(), 2U);
  EXPECT_EQ(p.landed[1].request, 2U);
  EXPECT_EQ(p.landed[1].landing.matched_pages, 0);
  EXPECT_TRUE(p.ended.empty());
}

TEST(HandOver, ChunksArriveTheSlotLastAndThePromptBecomesCache) {
  Pair p;
  p.submit(1, tokens(200));
  ASSERT_EQ(p.prefill->running.size(), 1U);
  p.prefill->compute(1, 128);
  p.settle();
  ASSERT_EQ(p.prefill->writes.size(), 1U);
  EXPECT_EQ(p.prefill->writes[0].from_pages, (std::vector<int32_t>{100, 101}));
  EXPECT_EQ(p.prefill->writes[0].to_pages.size(), 2U);
  p.prefill->compute(1, 200);
  p.settle();
  ASSERT_EQ(p.prefill->writes.size(), 3U);
  EXPECT_EQ(p.prefill->writes[2].slot_parts, slot_part::kAll);
  EXPECT_TRUE(p.prefill->stopped.empty()) << "what is still being written stays";
  p.land_all();
  EXPECT_EQ(p.prefill->stopped, (std::vector<JobId>{1}));
  ASSERT_EQ(p.landed.size(), 1U);
  EXPECT_EQ(p.landed[0].request, 1U);
  EXPECT_EQ(p.landed[0].landing.tree_pages, 3);
  EXPECT_TRUE(p.landed[0].reset_ring);
  EXPECT_TRUE(p.decode.idle());
  EXPECT_TRUE(p.prefill->end.idle());
}

TEST(HandOver, OnlyMissingPagesTravelAndTheSlotAlways) {
  Pair p;
  p.submit(1, tokens(128));
  p.prefill->compute(1, 128);
  p.settle();
  p.land_all();
  ASSERT_EQ(p.landed.size(), 1U);
  // Prefill has less than decode: it computes, and sends nothing of it.
  p.submit(2, tokens(200));
  p.prefill->compute(2, 64);
  p.settle();
  EXPECT_TRUE(p.prefill->writes.empty());
  p.prefill->compute(2, 200);
  p.settle();
  ASSERT_EQ(p.prefill->writes.size(), 2U);
  EXPECT_EQ(p.prefill->writes[0].from_pages, (std::vector<int32_t>{102, 103}));
  p.land_all();
  // Both have everything.
  p.submit(3, tokens(128));
  p.prefill->compute(3, 128);
  p.settle();
  ASSERT_EQ(p.prefill->writes.size(), 1U);
  EXPECT_TRUE(p.prefill->writes[0].from_pages.empty());
  EXPECT_EQ(p.prefill->writes[0].slot_parts, slot_part::kAll);
  p.land_all();
  EXPECT_EQ(p.landed.size(), 3U);
}

TEST(HandOver, WithoutCreditNoMemoryIsHeldAndTheQueueIsBounded) {
  Pair p;
  for (RequestKey k = 1; k <= 6; ++k) p.submit(k, tokens(64, static_cast<int32_t>(k)));
  EXPECT_EQ(p.prefill->running.size(), 2U) << "two credits";
  EXPECT_EQ(p.held(), 2);
  EXPECT_EQ(p.decode.metrics().waiting, 4);
  const Status full = p.decode.submit(9, {.tokens = tokens(64)}, p.now);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().kind, Error::Kind::kExhausted);
  p.prefill->compute(1, 64);
  p.settle();
  p.land_all();
  EXPECT_EQ(p.prefill->running.size(), 3U);
}

TEST(HandOver, ACancelledOrderIsFreeWhenItsWritesAreOver) {
  Pair p;
  p.submit(1, tokens(200));
  p.prefill->compute(1, 128);
  p.settle();
  p.decode.cancel(1, p.now);
  p.settle();
  EXPECT_EQ(p.ended[1], (std::vector<EndReason>{EndReason::kCancelled})) << "the client does not wait for it";
  EXPECT_EQ(p.held(), 4);
  EXPECT_EQ(p.decode.metrics().quarantined_pages, 4);
  EXPECT_FALSE(p.decode.idle());
  EXPECT_TRUE(p.prefill->stopped.empty());
  p.prefill->compute(1, 200);
  p.settle();
  EXPECT_EQ(p.prefill->writes.size(), 1U) << "nothing new is written for it";
  p.land();
  EXPECT_EQ(p.held(), 0);
  EXPECT_EQ(p.prefill->stopped, (std::vector<JobId>{1}));
  EXPECT_TRUE(p.decode.idle());
  EXPECT_EQ(p.tree.size(), 0);
}

TEST(HandOver, AnOrderThatComesAfterItsCancelDoesNotRun) {
  PrefillEnd end({.self = {kPrefill, 1}, .credits = 2, .context_tokens = 1000});
  const Process decode{kDecode, 5};
  end.receive({decode, {kPrefill, 0}, 1, Ping{}}, 0);
  end.receive({decode, {kPrefill, 1}, 1, Cancel{3, 0}}, 0);
  const auto drained = [&end] {
    for (const PrefillAction& a : end.actions())
      if (const auto* m = std::get_if<SendReply>(&a))
        if (std::holds_alternative<Drained>(m->envelope.body)) return true;
    return false;
  };
  EXPECT_TRUE(drained());
  end.clear_actions();
  end.receive({decode, {kPrefill, 1}, 1, Order{.ticket = 3, .tokens = tokens(64), .pages = {0}}}, 0);
  EXPECT_TRUE(drained());
  EXPECT_TRUE(end.idle());
  EXPECT_EQ(end.metrics().remembered, 1);
  end.receive({decode, {kPrefill, 1}, 4, Ping{}}, 0);
  EXPECT_EQ(end.metrics().remembered, 0) << "decode needs no answer any more";
  end.receive({decode, {kPrefill, 1}, 1, Order{.ticket = 3, .tokens = tokens(64), .pages = {0}}}, 0);
  EXPECT_TRUE(end.idle()) << "and what comes later still is too late";
}

TEST(HandOver, WhatIsLostIsSaidAgain) {
  Pair p;
  p.cut = true;
  p.submit(1, tokens(100));
  EXPECT_TRUE(p.prefill->running.empty());
  p.cut = false;
  p.wait(2 * kSecond);
  ASSERT_EQ(p.prefill->running.size(), 1U);
  p.wait(2 * kSecond);
  EXPECT_EQ(p.prefill->running.size(), 1U) << "an order is taken once";
  p.prefill->compute(1, 100);
  p.settle();
  p.cut = true;  // the notices and the answer go astray
  p.land_all();
  EXPECT_TRUE(p.landed.empty());
  p.cut = false;
  p.wait(2 * kSecond);
  ASSERT_EQ(p.landed.size(), 1U);
  EXPECT_EQ(p.checked.size(), 1U);
}

TEST(HandOver, ARestartedProcessIsAnotherOne) {
  Pair p;
  p.submit(1, tokens(100));
  p.prefill->compute(1, 64);
  p.settle();
  const Write late = p.prefill->writes.front();
  p.restart_prefill();
  p.wait(2 * kSecond);  // the order is said again, and the new process answers
  EXPECT_EQ(p.decode.metrics().peers_restarted, 1);
  EXPECT_EQ(p.decode.metrics().quarantined, 1);
  ASSERT_EQ(p.prefill->running.size(), 1U) << "ordered again, into other memory";
  EXPECT_EQ(p.held(), 4);
  p.decode.receive({{kPrefill, 1}, {kDecode, 1}, 0, late.notice}, p.now);
  EXPECT_GT(p.decode.metrics().stray_messages, 0);
  p.wait(3 * kSecond);
  EXPECT_EQ(p.decode.metrics().quarantined, 0) << "its last writes have arrived by now";
  p.prefill->compute(1, 100);
  p.settle();
  p.land_all();
  EXPECT_EQ(p.landed.size(), 1U);
  p.decode.receive({{kPrefill, 2}, {kDecode, 7}, 0, Grant{100}}, p.now);
  EXPECT_GT(p.decode.metrics().stray_messages, 1) << "meant for another process at this address";
}

TEST(HandOver, ASilentProcessKeepsItsQuarantineUntilItSpeaks) {
  Pair p;
  p.submit(1, tokens(100));
  p.cut = true;
  for (int i = 0; i < 20; ++i) p.wait(kSecond);
  EXPECT_EQ(p.decode.metrics().quarantined, 1);
  EXPECT_EQ(p.decode.metrics().waiting, 1);
  for (int i = 0; i < 200; ++i) p.wait(kSecond);
  EXPECT_EQ(p.decode.metrics().quarantined, 1) << "silence is not death";
  p.cut = false;
  p.wait(2 * kSecond);
  EXPECT_EQ(p.decode.metrics().quarantined, 0);
  EXPECT_EQ(p.decode.metrics().open, 1);
}

TEST(HandOver, AWrongChecksumIsAFailureAndTriesAreCounted) {
  Pair p;
  p.spoilt = true;
  p.submit(1, tokens(64));
  for (JobId job = 1; job <= 3; ++job) {
    p.prefill->compute(job, 64);
    p.settle();
    p.land_all();
    p.settle();
  }
  EXPECT_EQ(p.decode.metrics().mismatches, 3);
  EXPECT_EQ(p.ended[1], (std::vector<EndReason>{EndReason::kFailed}));
  EXPECT_TRUE(p.landed.empty());
  EXPECT_EQ(p.held() + p.tree.size(), 0);
}

TEST(HandOver, AFailedWriteAndAFailedJobAreAnswered) {
  Pair p;
  p.submit(1, tokens(100));
  p.prefill->compute(1, 100);
  p.settle();
  p.land(false);
  p.land();
  EXPECT_EQ(p.prefill->end.metrics().failed, 1);
  ASSERT_EQ(p.prefill->running.size(), 2U);
  p.prefill->end.failed(2);
  p.settle();
  ASSERT_EQ(p.prefill->running.size(), 3U);
  p.prefill->compute(3, 100);
  p.settle();
  p.land_all();
  EXPECT_EQ(p.landed.size(), 1U);
}

TEST(HandOver, DeadlinesEndRequestsWhereverTheyAre) {
  Pair p;
  for (RequestKey k = 1; k <= 3; ++k) p.submit(k, tokens(100, static_cast<int32_t>(k)), p.now + 5 * kSecond);
  EXPECT_EQ(p.decode.metrics().waiting, 1);
  p.prefill->compute(1, 64);
  p.settle();
  p.wait(6 * kSecond);
  for (RequestKey k = 1; k <= 3; ++k) EXPECT_EQ(p.ended[k], (std::vector<EndReason>{EndReason::kDeadline}));
  p.land_all();
  EXPECT_EQ(p.held(), 0);
  EXPECT_TRUE(p.decode.idle());
}

TEST(HandOver, ADecodeProcessThatIsGoneLeavesNothing) {
  Pair p;
  p.submit(1, tokens(100));
  p.submit(2, tokens(100, 5));
  p.prefill->compute(1, 64);
  p.settle();
  p.prefill->end.gone({kDecode, 1});
  p.settle();
  EXPECT_EQ(p.prefill->stopped, (std::vector<JobId>{2})) << "the other has a write under way";
  const Write w = p.prefill->writes.front();
  p.prefill->end.written(w.job, w.notice.part, false, 0);
  p.prefill->end.advance(p.now);
  EXPECT_TRUE(p.prefill->end.idle());
  p.prefill->end.check_invariants();
}

// Seed 100620 of the simulator: a repeated order that was still on the way when its process died was taken for one beyond the grant.
TEST(HandOver, WhatAProcessThatIsGoneHasSentIsForgottenAndTheNextOneIsHeard) {
  PrefillEnd end({.self = {kPrefill, 1}, .credits = 1, .context_tokens = 100});
  const Process decode{kDecode, 5};
  end.receive({decode, {kPrefill, 1}, 1, Ping{}}, 0);
  const Order order{.ticket = 1, .tokens = tokens(64), .pages = {1}};
  end.receive({decode, {kPrefill, 1}, 1, Order(order)}, 0);
  end.gone(decode);
  end.receive({decode, {kPrefill, 1}, 1, Order(order)}, 0);
  end.receive({decode, {kPrefill, 1}, 1, Cancel{.ticket = 2}}, 0);
  end.advance(0);
  EXPECT_EQ(end.metrics().contradictions, 0);
  EXPECT_EQ(end.metrics().stray_messages, 2);
  EXPECT_EQ(end.metrics().orders, 1);
  EXPECT_TRUE(end.idle());

  const Process next{kDecode, 6};
  end.receive({next, {kPrefill, 1}, 1, Ping{}}, 0);
  end.receive({next, {kPrefill, 1}, 1, Order(order)}, 0);
  EXPECT_EQ(end.metrics().orders, 2) << "the next process has a grant of its own";
  EXPECT_EQ(end.metrics().contradictions, 0);
  end.check_invariants();
}

TEST(HandOver, OrdersThatCannotBeMeantAreRefused) {
  PrefillEnd end({.self = {kPrefill, 1}, .credits = 8, .context_tokens = 100});
  const Process decode{kDecode, 5};
  end.receive({decode, {kPrefill, 1}, 1, Ping{}}, 0);
  Ticket ticket = 1;
  for (const Order& o :
       {Order{}, Order{.tokens = tokens(0)}, Order{.tokens = tokens(101), .pages = {1, 2}}, Order{.tokens = tokens(64), .pages = {1, 2}},
        Order{.tokens = tokens(64), .matched_pages = 2}, Order{.tokens = tokens(64), .matched_pages = -1, .pages = {1, 2}}}) {
    Order copy = o;
    copy.ticket = ticket++;
    end.receive({decode, {kPrefill, 1}, 1, std::move(copy)}, 0);
  }
  EXPECT_EQ(end.metrics().contradictions, 6);
  EXPECT_EQ(end.metrics().failed, 6);
  EXPECT_TRUE(end.idle());
  end.receive({decode, {kPrefill, 1}, 1, Grant{5}}, 0);
  EXPECT_EQ(end.metrics().contradictions, 7) << "what only prefill says";
  end.check_invariants();
}

TEST(HandOver, TheInstanceWithTheLeastToDoIsAsked) {
  cache::IdPool pages(64), slots(16);
  cache::PrefixTree tree(pages);
  LandingZone zone(pages, slots, tree);
  DecodeEnd decode({.self = {kDecode, 1}, .slots = 16}, zone);
  for (const InstanceId p : {2U, 3U}) {
    decode.add_prefill(p);
    decode.receive({{p, 1}, {kDecode, 1}, 0, Grant{10}}, 0);
  }
  std::vector<InstanceId> asked;
  const auto order = [&](RequestKey key, Tokens t) {
    EXPECT_TRUE(decode.submit(key, {.tokens = std::move(t)}, 0).ok());
    decode.advance(0, 0, true);
    for (const DecodeAction& a : decode.actions())
      if (const auto* m = std::get_if<Send>(&a))
        if (std::holds_alternative<Order>(m->envelope.body)) asked.push_back(m->envelope.to.instance);
    decode.clear_actions();
  };
  order(1, tokens(256));     // 2, the first of equals
  order(2, tokens(256, 1));  // 3, which owes nothing
  order(3, tokens(64, 2));   // 2 again
  order(4, tokens(300, 1));  // 3 has 4 of its 5 pages
  order(5, tokens(192));     // 2 has them all
  EXPECT_EQ(asked, (std::vector<InstanceId>{2, 3, 2, 3, 2}));
}

}  // namespace
}  // namespace baton::pd
