#include "transfer/same_host.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>

namespace baton::transfer {
namespace {

constexpr Agent kSender{1, 5}, kReceiver{2, 7};
constexpr int64_t kObject = 64;

// Memory of one end: pages 0 ... 7, slots 0 ... 3, filled with a byte.
struct End {
  explicit End(std::byte fill, std::vector<Run> page_runs = {{0, 0, 48, 8}}) : pages(8 * kObject, fill), slots(4 * kObject, fill) {
    memory = {.pages = {pages.data(), kObject, 8},
              .slots = {slots.data(), kObject, 4},
              .page_runs = std::move(page_runs),
              .slot_runs = {{{1, 0, 16, 0}, 1}, {{2, 0, 8, 32}, 2}},
              .fingerprint = 9};
  }
  std::vector<std::byte> pages, slots;
  Memory memory;
};

// Its notices, as they come.
struct Bell {
  void ring() {
    const std::lock_guard lock(mutex);
    ++rung;
    changed.notify_all();
  }
  std::mutex mutex;
  std::condition_variable changed;
  int rung = 0;
  void wait(int times) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return rung >= times; });
  }
};

Part part(uint64_t tag, std::vector<int32_t> from, std::vector<int32_t> to) {
  return {.to = kReceiver, .from_pages = std::move(from), .to_pages = std::move(to), .tag = tag, .notice = {std::byte{42}}};
}

TEST(SameHost, WritesPagesAndSlotsAndTellsWithTheChecksum) {
  End a(std::byte{1}), b(std::byte{2}, {{0, 0, 16, 0}, {0, 16, 32, 24}});  // laid out differently
  Bell bell;
  SameHost sender, receiver;
  receiver.on_event([&bell] { bell.ring(); });
  ASSERT_TRUE(sender.enter(kSender, a.memory).ok());
  ASSERT_TRUE(receiver.enter(kReceiver, b.memory).ok());
  EXPECT_EQ(sender.post(part(1, {0}, {0})).error().kind, Error::Kind::kNotFound);
  const auto met = sender.meet(receiver.introduction());
  ASSERT_TRUE(met.ok()) << met.error().message;
  EXPECT_EQ(*met, kReceiver);
  EXPECT_EQ(sender.post(part(1, {0}, {8})).error().kind, Error::Kind::kInvalid);
  for (int64_t i = 0; i < kObject; ++i) a.pages[static_cast<size_t>(3 * kObject + i)] = static_cast<std::byte>(i);
  Part p = part(1, {3, 4}, {7, 0});
  p.from_slot = 1;
  p.to_slot = 2;
  p.slot_parts = 2;
  ASSERT_TRUE(sender.post(p).ok());
  sender.progress();
  ASSERT_EQ(sender.completions().size(), 1U);
  ASSERT_TRUE(sender.completions()[0].ok);
  bell.wait(1);
  receiver.progress();
  ASSERT_EQ(receiver.arrivals().size(), 1U);
  EXPECT_EQ(receiver.arrivals()[0].from, kSender);
  EXPECT_EQ(receiver.arrivals()[0].notice, std::vector<std::byte>{std::byte{42}});
  EXPECT_EQ(b.pages[7 * kObject], std::byte{8});        // bytes 0 ... 15 of the array, which begin at 8 with the sender
  EXPECT_EQ(b.pages[7 * kObject + 24], std::byte{24});  // bytes 16 ...
  EXPECT_EQ(b.pages[7 * kObject + 20], std::byte{2});   // between the runs
  EXPECT_EQ(b.slots[2 * kObject + 32], std::byte{1});
  EXPECT_EQ(b.slots[2 * kObject], std::byte{2});  // another part of the slot
  EXPECT_EQ(receiver.metrics().arrived, 1);
  EXPECT_EQ(sender.metrics().page_bytes, 2 * 48);
  // Pages and slot of one part together: what both ends compute apart is compared by pages here.
  Part again = part(2, {3, 4}, {7, 0});
  ASSERT_TRUE(sender.post(again).ok());
  sender.progress();
  const std::vector<int32_t> pages = {7, 0};
  EXPECT_EQ(sender.completions()[0].checksum, receiver.checksum(pages, -1, 0));
}

TEST(SameHost, WhoIsNoneOfUsIsNotMet) {
  End a(std::byte{1}), b(std::byte{2});
  SameHost sender, receiver;
  ASSERT_TRUE(sender.enter(kSender, a.memory).ok());
  b.memory.fingerprint = 10;
  ASSERT_TRUE(receiver.enter(kReceiver, b.memory).ok());
  std::vector<std::byte> bytes = receiver.introduction();
  EXPECT_NE(sender.meet(bytes).error().message.find("different models"), std::string::npos);
  for (size_t n = 0; n < bytes.size(); ++n) EXPECT_EQ(sender.meet(std::span(bytes).first(n)).error().kind, Error::Kind::kInvalid);
  bytes.push_back(std::byte{0});
  EXPECT_EQ(sender.meet(bytes).error().kind, Error::Kind::kInvalid);
  EXPECT_EQ(sender.meet(sender.introduction()).error().kind, Error::Kind::kInvalid);
  EXPECT_EQ(sender.metrics().meetings, 0);
}

TEST(SameHost, WhoIsPartedWithGetsNothing) {
  End a(std::byte{1}), b(std::byte{2});
  SameHost sender, receiver;
  ASSERT_TRUE(sender.enter(kSender, a.memory).ok());
  ASSERT_TRUE(receiver.enter(kReceiver, b.memory).ok());
  ASSERT_TRUE(sender.meet(receiver.introduction()).ok());
  ASSERT_TRUE(sender.post(part(1, {0}, {0})).ok());
  sender.part_with(kReceiver);
  sender.progress();
  ASSERT_EQ(sender.completions().size(), 1U);
  EXPECT_FALSE(sender.completions()[0].ok);
  EXPECT_EQ(b.pages[8], std::byte{2});
  EXPECT_EQ(sender.metrics().failures[static_cast<size_t>(Failure::kGone)], 1);
}

// A process of its own, which is killed: what is posted to it fails, and a later one of the instance is another.
TEST(SameHost, AProcessThatHasEndedGetsNothing) {
  End a(std::byte{1});
  int there[2], back[2];
  ASSERT_EQ(::pipe(there) + ::pipe(back), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    End b(std::byte{2});
    Bell bell;
    SameHost receiver;
    receiver.on_event([&bell] { bell.ring(); });
    if (!receiver.enter(kReceiver, b.memory).ok()) ::_exit(1);
    const auto bytes = receiver.introduction();
    [[maybe_unused]] ssize_t n = ::write(there[1], bytes.data(), bytes.size());
    bell.wait(1);
    const std::byte landed = b.pages[5 * kObject + 8];
    n = ::write(there[1], &landed, 1);
    ::pause();
    ::_exit(0);
  }
  std::vector<std::byte> bytes(4096);
  const ssize_t n = ::read(there[0], bytes.data(), bytes.size());
  ASSERT_GT(n, 0);
  bytes.resize(static_cast<size_t>(n));
  SameHost sender;
  ASSERT_TRUE(sender.enter(kSender, a.memory).ok());
  const auto met = sender.meet(bytes);
  if (!met.ok()) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    GTEST_SKIP() << met.error().message;
  }
  ASSERT_TRUE(sender.post(part(1, {0}, {5})).ok());
  sender.progress();
  ASSERT_TRUE(sender.completions()[0].ok);
  std::byte landed{};
  ASSERT_EQ(::read(there[0], &landed, 1), 1);
  EXPECT_EQ(landed, std::byte{1});
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ASSERT_TRUE(sender.post(part(2, {0}, {5})).ok());
  sender.progress();
  EXPECT_FALSE(sender.completions()[0].ok);
  EXPECT_EQ(sender.metrics().failures[static_cast<size_t>(Failure::kGone)], 1);
  EXPECT_EQ(sender.meet(bytes).error().kind, Error::Kind::kIo);
  for (const int fd : {there[0], there[1], back[0], back[1]}) ::close(fd);
}

}  // namespace
}  // namespace baton::transfer
