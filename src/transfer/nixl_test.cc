#include "transfer/nixl.h"

#include <random>

#include "base/test_seed.h"
#include "transfer/introduction.h"
#include "transfer/nixl_library.h"
#include "transfer/nixl_self_test.h"
#include "transfer/nixl_test_support.h"
#include "transfer/transport_contract.h"

namespace baton::transfer {
namespace {

class ByNixl final : public Place {
 public:
  std::unique_ptr<Transport> make() override { return std::make_unique<Nixl>(); }
  Status introduce(Transport& to, Transport& from) override {
    const auto met = dynamic_cast<Nixl&>(from).meet(dynamic_cast<Nixl&>(to).introduction());
    return met.ok() ? Status() : met.error();
  }
};
INSTANTIATE_TEST_SUITE_P(Nixl, Contract,
                         ::testing::Values(Kind{[]() -> std::unique_ptr<Place> { return std::make_unique<ByNixl>(); }, nixl_lacking}));

class NixlTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!nixl_lacking().empty()) GTEST_SKIP() << "the library NIXL is not installed";
  }
  // Of objects of 64 bytes, one array.
  Process a{{{0, 0, 64, 0}}}, b{{{0, 0, 64, 0}}};
};

// One that has entered, with all that it has been told.
struct Entered {
  Entered(Agent self, Process& process, NixlOptions options = {}) : nixl(std::move(options)) {
    const Status entered = nixl.enter(self, process.memory());
    if (!entered.ok()) throw std::runtime_error(entered.error().message);
  }
  void wait_completions(size_t count) {
    wait_until(
        [&] {
          nixl.progress();
          for (const Completion& c : nixl.completions()) completions.push_back(c);
          return completions.size() >= count;
        },
        "completions");
  }
  Arrival wait_arrival() {
    std::vector<Arrival> got;
    wait_until([&] { return nixl.progress(), got.assign(nixl.arrivals().begin(), nixl.arrivals().end()), !got.empty(); }, "an arrival");
    return got.front();
  }
  Nixl nixl;
  std::vector<Completion> completions;
};

std::string refusal(Nixl& nixl, const std::vector<std::byte>& introduction) {
  const Result<Agent> met = nixl.meet(introduction);
  return met.ok() ? "met" : met.error().message;
}

TEST_F(NixlTest, TheLibraryDoesWhatIsDeclared) {
  const Status works = nixl_self_test(**load_nixl());
  EXPECT_TRUE(works.ok()) << works.error().message;
}

TEST_F(NixlTest, OnlyThoseWhoBelongTogetherMeet) {
  Entered one(kFirst, a), two(kSecond, b);
  const std::vector<std::byte> good = two.nixl.introduction();
  EXPECT_FALSE(good.empty());
  EXPECT_LT(good.size(), 4096U);
  const auto changed = [&good](const std::function<void(Introduction&)>& change) {
    Introduction i = *decode_introduction(good);
    change(i);
    return encode(i);
  };
  const auto says = [&](const std::vector<std::byte>& bytes, const char* words) {
    const std::string message = refusal(one.nixl, bytes);
    EXPECT_NE(message.find(words), std::string::npos) << message;
  };
  says({}, "no introduction");
  says(std::vector<std::byte>(good.begin(), good.end() - 2), "damaged");
  says(one.nixl.introduction(), "introduced to itself");
  says(changed([](Introduction& i) { i.transport = "tcp"; }), "reached by the transport \"tcp\" and this one by \"nixl\"");
  says(changed([](Introduction& i) { i.memory.fingerprint = 9; }), "different models");
  says(changed([](Introduction& i) { i.memory.page_runs[0].array = 9; }), "nothing in common");
  says(changed([](Introduction& i) { i.address.assign(100, std::byte{7}); }), "instance 2 (epoch 1) cannot be reached");
  EXPECT_EQ(one.nixl.meet(good).value(), kSecond);
  EXPECT_EQ(one.nixl.meet(good).value(), kSecond) << "again is nothing new";
  says(changed([](Introduction& i) { i.doormat += 64; }), "two processes call themselves instance 2 (epoch 1)");
  one.nixl.progress();
  EXPECT_EQ(one.nixl.metrics().peers, 1);
  EXPECT_EQ(one.nixl.metrics().meetings, 2);
  EXPECT_EQ(one.nixl.metrics().meetings_failed, 1) << "what is refused was no meeting";
  two.nixl.leave();
  EXPECT_TRUE(two.nixl.introduction().empty());
  EXPECT_EQ(two.nixl.meet(good).error().kind, Error::Kind::kNotFound);
}

TEST_F(NixlTest, ALaterProcessOfAnInstanceReplacesTheOneBefore) {
  Process c{{{0, 0, 64, 0}}};
  a.fill();
  Entered one(kFirst, a), two(kSecond, b);
  const std::vector<std::byte> before = two.nixl.introduction();
  ASSERT_TRUE(one.nixl.meet(before).ok());
  Entered again({kSecond.instance, 2}, c);
  ASSERT_TRUE(one.nixl.meet(again.nixl.introduction()).ok());
  EXPECT_NE(refusal(one.nixl, before).find("started again since"), std::string::npos);
  EXPECT_EQ(one.nixl.post({.to = kSecond, .from_pages = {1}, .to_pages = {1}}).error().kind, Error::Kind::kNotFound);
  ASSERT_TRUE(one.nixl.post({.to = {kSecond.instance, 2}, .from_pages = {1}, .to_pages = {1}}).ok());
  one.wait_completions(1);
  EXPECT_TRUE(one.completions[0].ok);
  EXPECT_EQ(again.wait_arrival().from, kFirst);
  EXPECT_EQ(c.pages[64], Process::content(1, 0, 0));
  EXPECT_EQ(b.pages[64], std::byte{0xEE});
}

TEST_F(NixlTest, WhoIsPartedWithGetsNothingUntilItIsMetAgain) {
  a.fill();
  Entered one(kFirst, a), two(kSecond, b);
  one.nixl.part_with(kSecond);
  ASSERT_TRUE(one.nixl.meet(two.nixl.introduction()).ok());
  one.nixl.part_with(kSecond);
  EXPECT_EQ(one.nixl.post({.to = kSecond, .from_pages = {1}, .to_pages = {1}}).error().kind, Error::Kind::kNotFound);
  ASSERT_TRUE(one.nixl.meet(two.nixl.introduction()).ok());
  // Posted, and parted with at once: each part ends, one way or the other.
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(one.nixl.post({.to = kSecond, .from_pages = {1}, .to_pages = {1}}).ok());
  one.nixl.part_with(kSecond);
  one.wait_completions(20);
  const Metrics m = one.nixl.metrics();
  EXPECT_EQ(m.parts, 20);
  EXPECT_EQ(m.waiting, 0);
  EXPECT_EQ(m.failures[static_cast<size_t>(Failure::kGone)], m.failed);
  EXPECT_EQ(m.peers, 0);
}

TEST_F(NixlTest, ADamagedPartIsSeenByItsChecksum) {
  a.fill();
  Process c{{{0, 0, 64, 0}}, {{{1, 0, 20, 4}, 1}}}, d{{{0, 0, 64, 0}}, {{{1, 0, 20, 40}, 1}}};
  c.fill();
  NixlOptions options;
  options.damage_every = 2;
  Entered one(kFirst, c, options), two(kSecond, d);
  ASSERT_TRUE(one.nixl.meet(two.nixl.introduction()).ok());
  const Part pages{.to = kSecond, .from_pages = {1, 2}, .to_pages = {2, 1}},
      slot{.to = kSecond, .from_slot = 1, .to_slot = 2, .slot_parts = 1};
  size_t sent = 0;
  for (const Part& part : {pages, slot})
    for (const bool right : {true, false}) {
      ASSERT_TRUE(one.nixl.post(part).ok());
      one.wait_completions(++sent);
      EXPECT_TRUE(one.completions.back().ok);
      const Arrival arrival = two.wait_arrival();
      EXPECT_EQ(arrival.checksum, one.completions.back().checksum);
      EXPECT_EQ(arrival.checksum == two.nixl.checksum(part.to_pages, part.to_slot, 1), right);
    }
  EXPECT_EQ(c.pages[64], Process::content(1, 0, 0)) << "the source is as it was";
}

TEST_F(NixlTest, MemoryOfADeviceNeedsAChecksum) {
  Nixl nixl(NixlOptions{.device = 0});
  EXPECT_EQ(nixl.enter(kFirst, a.memory()).error().kind, Error::Kind::kUnsupported);
}

// Several who write to several, from and to the same memory, with meetings and partings in between.
TEST_F(NixlTest, ManyMeetAndWriteAtOnce) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
  std::mt19937 random(seed);
  a.fill();
  Process c{{{0, 0, 64, 0}}};
  Entered one(kFirst, a), two(kSecond, b), three(kThird, c);
  std::thread meets([&] {
    for (int i = 0; i < 20; ++i) {
      const Result<Agent> met = one.nixl.meet((i % 2 == 0 ? two : three).nixl.introduction());
      if (!met.ok()) {
        EXPECT_NE(met.error().message.find("parted with while"), std::string::npos) << met.error().message;
      }
    }
  });
  size_t posted = 0;
  for (int i = 0; i < 500; ++i) {
    const auto page = static_cast<int32_t>(random() % 8);
    if (one.nixl.post({.to = random() % 2 == 0 ? kSecond : kThird, .from_pages = {page}, .to_pages = {page}}).ok()) ++posted;
    if (random() % 50 == 0) one.nixl.part_with(kThird);
    if (random() % 10 == 0) std::this_thread::yield();
  }
  meets.join();
  one.wait_completions(posted);
  EXPECT_EQ(one.completions.size(), posted);
  EXPECT_EQ(one.nixl.metrics().waiting, 0);
  EXPECT_EQ(one.nixl.metrics().failures[static_cast<size_t>(Failure::kGone)], one.nixl.metrics().failed);
}

}  // namespace
}  // namespace baton::transfer
