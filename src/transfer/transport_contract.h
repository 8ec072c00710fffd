// What every transport does, as tests: a program includes this and says of which one, by INSTANTIATE_TEST_SUITE_P(..., Contract, ...).
//
// A transport may take its time: tests wait for what must come, and a watchdog ends the program if it does not.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "base/test_seed.h"
#include "transfer/test_watchdog.h"
#include "transfer/transport.h"

namespace baton::transfer {

using Runs = std::vector<Run>;  // a test has a function of the name
inline constexpr Agent kFirst{1, 1}, kSecond{2, 1}, kThird{3, 1};

// Memory of some layout, in objects of 64 bytes.
struct Process {
  explicit Process(std::vector<Run> page_runs, std::vector<SlotRun> slot_runs = {})
      : pages(8 * 64, std::byte{0xEE}), slots(4 * 64, std::byte{0xEE}), page(std::move(page_runs)), slot(std::move(slot_runs)) {}
  Memory memory() { return {.pages = {pages.data(), 64, 8}, .slots = {slots.data(), 64, 4}, .page_runs = page, .slot_runs = slot}; }
  // The byte of an array that a page or slot has at some place; 0xEE outside all runs.
  static std::byte content(int32_t object, uint32_t array, int64_t at) {
    return static_cast<std::byte>((object * 31 + static_cast<int64_t>(array) * 7 + at) % 200);
  }
  void fill() {
    for (int32_t i = 0; i < 8; ++i)
      for (const Run& r : page)
        for (int64_t b = 0; b < r.bytes; ++b) pages[static_cast<size_t>(i * 64 + r.offset + b)] = content(i, r.array, r.first + b);
    for (int32_t i = 0; i < 4; ++i)
      for (const SlotRun& r : slot)
        for (int64_t b = 0; b < r.run.bytes; ++b)
          slots[static_cast<size_t>(i * 64 + r.run.offset + b)] = content(i, r.run.array, r.run.first + b);
  }
  std::vector<std::byte> pages, slots;
  std::vector<Run> page;
  std::vector<SlotRun> slot;
};

inline std::vector<std::byte> notice(int value) { return {std::byte{1}, static_cast<std::byte>(value)}; }

// Transports of a kind that can reach each other.
class Place {
 public:
  virtual ~Place() = default;
  virtual std::unique_ptr<Transport> make() = 0;
  // From now on `from` can post to `to`. Both have entered.
  virtual Status introduce(Transport& to, Transport& from) = 0;
};

// One end with all that it has been told.
struct End {
  explicit End(Place& place) : transport(place.make()) {
    transport->on_event([this] { ++told; });
  }
  void step() {
    transport->progress();
    for (const Arrival& a : transport->arrivals()) arrivals.push_back(a);
    for (const Completion& c : transport->completions()) completions.push_back(c);
  }
  void wait_completions(size_t count) {
    wait_until([&] { return step(), completions.size() >= count; }, "completions");
  }
  void wait_arrivals(size_t count) {
    wait_until([&] { return step(), arrivals.size() >= count; }, "arrivals");
  }
  Transport* operator->() { return transport.get(); }

  std::atomic<int> told{0};
  std::unique_ptr<Transport> transport;
  std::vector<Arrival> arrivals;
  std::vector<Completion> completions;
};

using MakePlace = std::function<std::unique_ptr<Place>()>;
struct Kind {
  MakePlace make;
  std::function<std::string()> lacking = {};  // what keeps it from running here, or nothing
};
class Contract : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    const std::string lacking = GetParam().lacking ? GetParam().lacking() : std::string();
    if (!lacking.empty()) GTEST_SKIP() << lacking;
  }
  std::unique_ptr<Place> place = GetParam().make();
};

TEST_P(Contract, PagesAndSlotPartsArriveWithTheirChecksums) {
  Process p({{0, 0, 16, 0}, {1, 0, 8, 32}}, {{{2, 0, 16, 8}, 1}, {{3, 0, 4, 40}, 2}});
  Process d({{1, 0, 8, 0}, {0, 0, 16, 8}}, {{{3, 0, 4, 0}, 2}, {{2, 0, 16, 16}, 1}});
  p.fill();
  End from(*place), to(*place);
  ASSERT_TRUE(from->enter(kFirst, p.memory()).ok());
  ASSERT_TRUE(to->enter(kSecond, d.memory()).ok());
  ASSERT_TRUE(place->introduce(*to.transport, *from.transport).ok());
  ASSERT_TRUE(from->post({.to = kSecond, .from_pages = {5, 2}, .to_pages = {0, 7}, .tag = 11, .notice = notice(1)}).ok());
  from.wait_completions(1);
  ASSERT_TRUE(from->post({.to = kSecond, .from_slot = 3, .to_slot = 1, .slot_parts = 1, .tag = 12, .notice = notice(2)}).ok());
  from.wait_completions(2);
  to.wait_arrivals(2);
  EXPECT_GE(to.told, 1);
  ASSERT_EQ(from.completions.size(), 2U);
  ASSERT_EQ(to.arrivals.size(), 2U);
  EXPECT_TRUE(from.arrivals.empty() && to.completions.empty());
  EXPECT_EQ(to.arrivals[0].from, kFirst);
  EXPECT_EQ(to.arrivals[0].checksum, from.completions[0].checksum);
  EXPECT_EQ(to.arrivals[1].notice, notice(2));
  EXPECT_EQ(from.completions[1].tag, 12U);
  EXPECT_TRUE(from.completions[0].ok);
  EXPECT_EQ(from.completions[0].checksum, to->checksum(std::vector{0, 7}, -1, 0));
  EXPECT_NE(from.completions[0].checksum, to->checksum(std::vector{7, 0}, -1, 0));
  EXPECT_EQ(from.completions[1].checksum, to->checksum({}, 1, 1));
  EXPECT_EQ(d.pages[8], Process::content(5, 0, 0));
  EXPECT_EQ(d.pages[7 * 64], Process::content(2, 1, 0));
  EXPECT_EQ(d.slots[64 + 16], Process::content(3, 2, 0));
  EXPECT_EQ(d.slots[64], std::byte{0xEE}) << "a part that was not asked for";
  EXPECT_EQ(d.pages[64], std::byte{0xEE}) << "a page that nobody wrote";
  d.pages[9] ^= std::byte{1};
  EXPECT_NE(from.completions[0].checksum, to->checksum(std::vector{0, 7}, -1, 0));
  EXPECT_EQ(from->metrics().page_bytes, 48);
  EXPECT_EQ(from->metrics().slot_bytes, 16);
  EXPECT_EQ(from->metrics().parts, 2);
  EXPECT_EQ(from->metrics().failed, 0);
  EXPECT_EQ(to->metrics().arrived, 2);
}

// Pages and a slot in one part, a notice alone, and a notice of the most bytes.
TEST_P(Contract, APartMayHaveEverythingOrNothing) {
  Process p({{0, 0, 64, 0}}, {{{2, 0, 16, 8}, 1}}), d({{0, 0, 64, 0}}, {{{2, 0, 16, 40}, 1}});
  p.fill();
  End from(*place), to(*place);
  ASSERT_TRUE(from->enter(kFirst, p.memory()).ok());
  ASSERT_TRUE(to->enter(kSecond, d.memory()).ok());
  ASSERT_TRUE(place->introduce(*to.transport, *from.transport).ok());
  const std::vector<std::byte> long_notice(static_cast<size_t>(kMostNoticeBytes), std::byte{0});
  ASSERT_TRUE(from->post({.to = kSecond,
                          .from_pages = {0, 1, 2},
                          .to_pages = {4, 3, 5},
                          .from_slot = 0,
                          .to_slot = 3,
                          .slot_parts = 1,
                          .notice = long_notice})
                  .ok());
  from.wait_completions(1);
  ASSERT_TRUE(from->post({.to = kSecond}).ok());
  from.wait_completions(2);
  to.wait_arrivals(2);
  EXPECT_EQ(to.arrivals[0].notice, long_notice);
  EXPECT_TRUE(to.arrivals[1].notice.empty());
  EXPECT_EQ(from.completions[0].checksum, to->checksum(std::vector{4, 3, 5}, 3, 1));
  EXPECT_EQ(d.slots[3 * 64 + 40], Process::content(0, 2, 0));
  EXPECT_EQ(d.pages[3 * 64 + 63], Process::content(1, 0, 63));
}

TEST_P(Contract, SendersOfOtherLayoutsMakeUpTheWhole) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 3; ++round) {
    const auto cut = static_cast<int64_t>(1 + random() % 31);
    Process low({{0, 0, cut, 5}}), high({{0, cut, 32 - cut, 1}}), whole({{0, 0, 32, 16}});
    low.fill();
    high.fill();
    End receiver(*place);
    ASSERT_TRUE(receiver->enter(kThird, whole.memory()).ok());
    for (auto [agent, memory] : {std::pair(kFirst, low.memory()), std::pair(kSecond, high.memory())}) {
      End sender(*place);
      ASSERT_TRUE(sender->enter(agent, memory).ok());
      ASSERT_TRUE(place->introduce(*receiver.transport, *sender.transport).ok());
      ASSERT_TRUE(sender->post({.to = kThird, .from_pages = {4}, .to_pages = {4}}).ok());
      sender.wait_completions(1);
    }
    receiver.wait_arrivals(2);
    for (int64_t b = 0; b < 32; ++b) ASSERT_EQ(whole.pages[static_cast<size_t>(4 * 64 + 16 + b)], Process::content(4, 0, b)) << cut;
  }
}

TEST_P(Contract, NobodyWritesElsewhereAndOthersAreNotMet) {
  Process a({{0, 0, 16, 0}}), b({{0, 0, 16, 0}}), c({{9, 0, 16, 0}});
  End from(*place), to(*place);
  ASSERT_TRUE(from->enter(kFirst, a.memory()).ok());
  EXPECT_NE(from->post({.to = kSecond}).error().message.find("instance 2 (epoch 1) is not here"), std::string::npos);
  ASSERT_TRUE(to->enter(kSecond, b.memory()).ok());
  ASSERT_TRUE(place->introduce(*to.transport, *from.transport).ok());
  EXPECT_NE(from->post({.to = kSecond, .from_pages = {0}, .to_pages = {8}}).error().message.find("it has 8 and 4"), std::string::npos);
  EXPECT_FALSE(from->post({.to = kSecond, .from_pages = {0}, .to_pages = {-1}}).ok());
  EXPECT_FALSE(from->post({.to = kSecond, .from_slot = 0, .to_slot = 4}).ok());
  EXPECT_EQ(from->post({.to = {2, 7}}).error().kind, Error::Kind::kNotFound);
  Memory of_another_model = a.memory();
  of_another_model.fingerprint = 1;
  for (const auto& [memory, words] : {std::pair(c.memory(), "have nothing in common"), std::pair(of_another_model, "different models")}) {
    End other(*place);
    Status refused = other->enter(kThird, memory);
    if (refused.ok()) refused = place->introduce(*other.transport, *from.transport);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, Error::Kind::kInvalid);
    EXPECT_NE(refused.error().message.find(words), std::string::npos) << refused.error().message;
  }
  from->leave();
  from->leave();
  EXPECT_EQ(from->post({.to = kSecond}).error().kind, Error::Kind::kNotFound);
}

}  // namespace baton::transfer
