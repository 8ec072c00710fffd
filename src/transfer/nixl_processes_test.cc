// The transport over NIXL between real processes, and what happens when one of them dies or stops.
#include <gtest/gtest.h>

#include <csignal>

#include "transfer/nixl.h"
#include "transfer/nixl_test_support.h"
#include "transfer/test_watchdog.h"

namespace baton::transfer {
namespace {

constexpr Agent kSelf{1, 1}, kOther{2, 1};

class NixlProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!nixl_lacking().empty()) GTEST_SKIP() << "the library NIXL is not installed";
    for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<std::byte>(i * 13 + kSelf.instance + i / 4096);
  }
  static std::unique_ptr<PeerProcess> peer(const std::vector<std::string>& arguments = {"2", "1"}) {
    return std::make_unique<PeerProcess>(BATON_NIXL_PEER, arguments);
  }
  void enter(NixlOptions options = {}) {
    nixl = std::make_unique<Nixl>(std::move(options));
    const Status entered = nixl->enter(kSelf, peer_memory(pages));
    ASSERT_TRUE(entered.ok()) << entered.error().message;
  }
  // Part number i of n pages.
  Status post(Agent to, int32_t i, int32_t n = 8) { return nixl->post(peer_part(to, i, n)); }
  void step() {
    nixl->progress();
    for (const Completion& c : nixl->completions()) ++(c.ok ? ok : failed);
    for (const Arrival& a : nixl->arrivals()) ++(a.checksum == nixl->checksum(noticed_pages(a), -1, 0) ? right : wrong);
  }
  void wait_over(int64_t parts) {
    wait_until([&] { return step(), ok + failed >= parts; }, "completions");
  }

  std::vector<std::byte> pages = std::vector<std::byte>(kPeerPageBytes * kPeerPages);
  std::unique_ptr<Nixl> nixl;
  int64_t ok = 0, failed = 0, right = 0, wrong = 0;
};

TEST_F(NixlProcesses, WriteToEachOther) {
  enter();
  const auto other = peer();
  ASSERT_EQ(nixl->meet(other->introduction).value(), kOther);
  other->say("meet " + hex(nixl->introduction()));
  EXPECT_EQ(other->hear(), "met 1");
  other->say("write 1 1 100 8");
  for (int32_t i = 0; i < 100; ++i) ASSERT_TRUE(post(kOther, i).ok());
  wait_over(100);
  EXPECT_EQ(ok, 100);
  other->say("await 100");
  EXPECT_EQ(other->hear(), "wrote 100 0");
  EXPECT_EQ(other->hear(), "got 100 0");
  wait_until([&] { return step(), right + wrong >= 100; }, "arrivals");
  EXPECT_EQ(right, 100);
  const Metrics m = nixl->metrics();
  EXPECT_EQ(m.page_bytes, 100 * 8 * kPeerPageBytes);
  EXPECT_GT(m.took_ns, 0);
  EXPECT_GE(m.took_ns, m.slowest_ns);
  EXPECT_EQ(m.garbled + m.failed + m.left_behind, 0);
  other->say("leave");
  EXPECT_EQ(other->hear(), "left 0");
  nixl->leave();
  EXPECT_EQ(nixl->metrics().left_behind, 0);
}

TEST_F(NixlProcesses, OthersOfAnotherModelAreNotMet) {
  enter();
  const auto other = peer({"2", "1", std::to_string(kPeerPageBytes), "8", "7"});
  EXPECT_NE(nixl->meet(other->introduction).error().message.find("different models"), std::string::npos);
  other->say("meet " + hex(nixl->introduction()));
  EXPECT_NE(other->hear().find("different models"), std::string::npos);
}

// Killed at some moment of a stream of parts: each part has one end, later ones fail, and who is started in its place gets its own.
TEST_F(NixlProcesses, AReceiverThatIsKilledFailsPartsAndIsReplaced) {
  enter();
  auto other = peer();
  int64_t posted = 0;
  for (uint64_t epoch = 1; epoch <= 2; ++epoch) {
    const Agent agent{kOther.instance, epoch};
    ASSERT_EQ(nixl->meet(other->introduction).value(), agent);
    const int64_t before_failed = failed, before_ok = ok;
    for (int32_t i = 0; i < 40; ++i, ++posted) ASSERT_TRUE(post(agent, i).ok());
    wait_until([&] { return step(), ok - before_ok >= static_cast<int64_t>(epoch * 8); }, "the first parts");
    other->kill();
    // Nobody tells the transport: it finds out by itself.
    for (int32_t i = 0; failed == before_failed; ++i) {
      ASSERT_TRUE(post(agent, i).ok());
      wait_over(++posted);
    }
    wait_over(posted);
    EXPECT_EQ(ok + failed, posted);
    EXPECT_EQ(nixl->metrics().waiting, 0);
    const Result<Agent> dead = nixl->meet(other->introduction);
    ASSERT_FALSE(dead.ok());
    EXPECT_EQ(dead.error().kind, Error::Kind::kIo) << dead.error().message;
    other = peer({"2", std::to_string(epoch + 1)});
  }
  const Agent last{kOther.instance, 3};
  ASSERT_EQ(nixl->meet(other->introduction).value(), last);
  EXPECT_EQ(post({kOther.instance, 2}, 0).error().kind, Error::Kind::kNotFound);
  for (int32_t i = 0; i < 20; ++i, ++posted) ASSERT_TRUE(post(last, i).ok());
  other->say("await 20");
  EXPECT_EQ(other->hear(), "got 20 0");
  wait_over(posted);
  EXPECT_EQ(nixl->metrics().parts, posted);
  EXPECT_EQ(nixl->metrics().failed, failed);
  EXPECT_EQ(nixl->metrics().peers, 1);
  nixl->leave();
}

TEST_F(NixlProcesses, ASenderThatIsKilledLeavesItsReceiverAlone) {
  enter();
  const auto first = peer();
  first->say("meet " + hex(nixl->introduction()));
  EXPECT_EQ(first->hear(), "met 1");
  first->say("flood 1 1 8");
  EXPECT_EQ(first->hear(), "flooding");
  wait_until([&] { return step(), right >= 50; }, "arrivals");
  first->kill();
  EXPECT_EQ(wrong, 0);
  const auto next = peer({"2", "2"});
  ASSERT_TRUE(nixl->meet(next->introduction).ok());
  ASSERT_TRUE(post({2, 2}, 0).ok());
  wait_over(1);
  EXPECT_EQ(ok, 1);
  nixl->leave();
}

// More parts than fit into what connects the two, to a receiver that does not look: nobody hangs, and all are there when it goes on.
TEST_F(NixlProcesses, AReceiverThatStopsGetsEverythingWhenItGoesOn) {
  enter();
  const auto other = peer();
  ASSERT_TRUE(nixl->meet(other->introduction).ok());
  other->signal(SIGSTOP);
  for (int32_t i = 0; i < 2000; ++i) ASSERT_TRUE(post(kOther, i, 1).ok());
  for (int i = 0; i < 100; ++i) step();
  other->signal(SIGCONT);
  wait_over(2000);
  EXPECT_EQ(ok, 2000);
  other->say("await 2000");
  EXPECT_EQ(other->hear(), "got 2000 0");
}

// The same with little patience: parts may fail, each once, and the next ones arrive over another connection.
TEST_F(NixlProcesses, PartsThatTakeTooLongFailAndTheNextOnesDoNot) {
  NixlOptions options;
  options.part_limit = std::chrono::milliseconds(200);
  options.meet_limit = std::chrono::milliseconds(200);
  enter(options);
  const auto other = peer();
  wait_until([&] { return nixl->meet(other->introduction).ok(); }, "a meeting");
  other->signal(SIGSTOP);
  int64_t posted = 0;
  while (failed == 0) {
    ASSERT_TRUE(post(kOther, static_cast<int32_t>(posted % 1000), 1).ok());
    ++posted;
    wait_until([&] { return step(), failed > 0 || nixl->metrics().waiting < 100; }, "room");
  }
  wait_over(posted);
  EXPECT_GT(nixl->metrics().failures[static_cast<size_t>(Failure::kTooLong)], 0);
  EXPECT_EQ(nixl->metrics().waiting, 0);
  // Who is met now does not answer.
  nixl->part_with(kOther);
  EXPECT_EQ(nixl->meet(other->introduction).error().kind, Error::Kind::kIo);
  other->signal(SIGCONT);
  wait_until([&] { return nixl->meet(other->introduction).ok(); }, "a meeting");
  const int64_t before = ok;
  while (ok == before) {
    ASSERT_TRUE(post(kOther, 0, 1).ok());
    wait_over(++posted);
  }
  nixl->leave();
}

}  // namespace
}  // namespace baton::transfer
