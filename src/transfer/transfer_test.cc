#include <gtest/gtest.h>

#include <random>

#include "base/test_seed.h"
#include "transfer/in_process.h"

namespace baton::transfer {
namespace {

using Runs = std::vector<Run>;  // a test has a function of the name
constexpr Agent kFirst{1, 1}, kSecond{2, 1}, kThird{3, 1};

// Objects of 64 bytes with some layout.
struct Process {
  explicit Process(std::vector<Run> page_runs, std::vector<SlotRun> slot_runs = {})
      : pages(8 * 64, std::byte{0xEE}), slots(4 * 64, std::byte{0xEE}), page(std::move(page_runs)), slot(std::move(slot_runs)) {}
  Memory memory() { return {{pages.data(), 64, 8}, {slots.data(), 64, 4}, page, slot}; }
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

TEST(Slices, EqualLayoutsAreOneCopyAndOthersAreCut) {
  const Runs whole = {{0, 0, 16, 0}, {1, 0, 16, 16}};
  const std::vector<Slice> one = slices(whole, whole);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].bytes, 32);
  // Heads of a layer over two ranks: each sends its half to where it belongs.
  const Runs low = {{0, 0, 8, 0}, {1, 0, 8, 8}}, high = {{0, 8, 8, 0}, {1, 8, 8, 8}};
  const std::vector<Slice> first = slices(low, whole), second = slices(high, whole);
  ASSERT_EQ(first.size(), 2U);
  ASSERT_EQ(second.size(), 2U);
  EXPECT_EQ(second[1].from, 8);
  EXPECT_EQ(second[1].to, 24);
  EXPECT_TRUE(check_cover(std::vector<Runs>{low, high}, whole).ok());
  EXPECT_NE(check_cover(std::vector<Runs>{low}, whole).error().message.find("byte 8 of array 0 is with no sender"), std::string::npos);
  EXPECT_NE(check_cover(std::vector<Runs>{low, whole}, whole).error().message.find("byte 0 of array 0 would be sent twice"),
            std::string::npos);
  EXPECT_TRUE(slices(low, high).empty());
}

std::vector<std::byte> notice(int value) { return {std::byte{1}, static_cast<std::byte>(value)}; }

TEST(InProcess, PagesAndSlotPartsArriveWithTheirChecksums) {
  Process p({{0, 0, 16, 0}, {1, 0, 8, 32}}, {{{2, 0, 16, 8}, 1}, {{3, 0, 4, 40}, 2}});
  Process d({{1, 0, 8, 0}, {0, 0, 16, 8}}, {{{3, 0, 4, 0}, 2}, {{2, 0, 16, 16}, 1}});
  p.fill();
  Exchange exchange;
  InProcess from(exchange), to(exchange);
  int told = 0;
  to.on_event([&told] { ++told; });
  ASSERT_TRUE(from.enter(kFirst, p.memory()).ok());
  ASSERT_TRUE(to.enter(kSecond, d.memory()).ok());
  ASSERT_TRUE(from.post({.to = kSecond, .from_pages = {5, 2}, .to_pages = {0, 7}, .tag = 11, .notice = notice(1)}).ok());
  ASSERT_TRUE(from.post({.to = kSecond, .from_slot = 3, .to_slot = 1, .slot_parts = 1, .tag = 12, .notice = notice(2)}).ok());
  to.progress();
  EXPECT_TRUE(to.arrivals().empty());
  from.progress();
  EXPECT_EQ(told, 2);
  to.progress();
  ASSERT_EQ(from.completions().size(), 2U);
  ASSERT_EQ(to.arrivals().size(), 2U);
  EXPECT_TRUE(from.arrivals().empty() && to.completions().empty());
  EXPECT_EQ(to.arrivals()[0].from, kFirst);
  EXPECT_EQ(to.arrivals()[1].notice, notice(2));
  EXPECT_EQ(from.completions()[1].tag, 12U);
  EXPECT_TRUE(from.completions()[0].ok);
  EXPECT_EQ(from.completions()[0].checksum, to.checksum(std::vector{0, 7}, -1, 0));
  EXPECT_NE(from.completions()[0].checksum, to.checksum(std::vector{7, 0}, -1, 0));
  EXPECT_EQ(from.completions()[1].checksum, to.checksum({}, 1, 1));
  EXPECT_EQ(d.pages[8], Process::content(5, 0, 0));
  EXPECT_EQ(d.pages[7 * 64], Process::content(2, 1, 0));
  EXPECT_EQ(d.slots[64 + 16], Process::content(3, 2, 0));
  EXPECT_EQ(d.slots[64], std::byte{0xEE}) << "a part that was not asked for";
  EXPECT_EQ(d.pages[64], std::byte{0xEE}) << "a page that nobody wrote";
  d.pages[9] ^= std::byte{1};
  EXPECT_NE(from.completions()[0].checksum, to.checksum(std::vector{0, 7}, -1, 0));
  EXPECT_EQ(from.metrics().page_bytes, 48);
  EXPECT_EQ(from.metrics().slot_bytes, 16);
  EXPECT_EQ(to.metrics().arrived, 2);
}

TEST(InProcess, SendersOfOtherLayoutsMakeUpTheWhole) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    const auto cut = static_cast<int64_t>(1 + random() % 31);
    Process low({{0, 0, cut, 5}}), high({{0, cut, 32 - cut, 1}}), whole({{0, 0, 32, 16}});
    low.fill();
    high.fill();
    Exchange exchange;
    InProcess receiver(exchange);
    ASSERT_TRUE(receiver.enter(kThird, whole.memory()).ok());
    for (auto [agent, memory] : {std::pair(kFirst, low.memory()), std::pair(kSecond, high.memory())}) {
      InProcess sender(exchange);
      ASSERT_TRUE(sender.enter(agent, memory).ok());
      ASSERT_TRUE(sender.post({.to = kThird, .from_pages = {4}, .to_pages = {4}}).ok());
      sender.progress();
    }
    for (int64_t b = 0; b < 32; ++b) ASSERT_EQ(whole.pages[static_cast<size_t>(4 * 64 + 16 + b)], Process::content(4, 0, b)) << cut;
  }
}

TEST(InProcess, WhoHasLeftGetsNothingAndNobodyWritesElsewhere) {
  Process a({{0, 0, 16, 0}}), b({{0, 0, 16, 0}}), c({{9, 0, 16, 0}});
  a.fill();
  Exchange exchange;
  InProcess from(exchange), to(exchange), other(exchange);
  ASSERT_TRUE(from.enter(kFirst, a.memory()).ok());
  ASSERT_TRUE(to.enter(kSecond, b.memory()).ok());
  EXPECT_NE(from.post({.to = kSecond, .from_pages = {0}, .to_pages = {8}}).error().message.find("it has 8 and 4"), std::string::npos);
  EXPECT_FALSE(from.post({.to = kSecond, .from_slot = 0, .to_slot = 4}).ok());
  ASSERT_TRUE(from.post({.to = kSecond, .from_pages = {0}, .to_pages = {0}, .tag = 3}).ok());
  to.leave();
  from.progress();
  ASSERT_EQ(from.completions().size(), 1U);
  EXPECT_FALSE(from.completions()[0].ok);
  EXPECT_EQ(b.pages[0], std::byte{0xEE});
  EXPECT_NE(from.post({.to = kSecond}).error().message.find("instance 2 (epoch 1) is not here"), std::string::npos);
  EXPECT_EQ(from.metrics().failures[static_cast<size_t>(Failure::kGone)], 1);
  EXPECT_NE(other.enter(kThird, c.memory()).error().message.find("have nothing in common"), std::string::npos);
  Memory of_another_model = a.memory();
  of_another_model.fingerprint = 1;
  EXPECT_NE(other.enter(kThird, of_another_model).error().message.find("different models"), std::string::npos);
}

}  // namespace
}  // namespace baton::transfer
