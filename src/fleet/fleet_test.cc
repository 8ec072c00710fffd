#include <gtest/gtest.h>

#include <random>

#include "base/test_seed.h"
#include "fleet/message.h"
#include "fleet/peers.h"

namespace baton::fleet {
namespace {

constexpr pd::Process kDecode{1, 10}, kPrefill{2, 20}, kRestarted{2, 21}, kOther{3, 30};

std::vector<std::byte> bytes(std::string_view text) {
  const auto all = std::as_bytes(std::span(text.data(), text.size()));
  return {all.begin(), all.end()};
}

Reply known(pd::Process self, bool ready = true) { return {.self = self, .known = true, .ready = ready}; }

TEST(Message, ComesBackAsItWas) {
  const auto introduction = bytes("memory");
  const auto meeting = read_meeting(encode(Meeting{.from = kDecode, .url = "", .port = 80, .tls = true, .introduction = introduction}));
  ASSERT_TRUE(meeting.ok());
  EXPECT_EQ(meeting->from, kDecode);
  EXPECT_EQ(meeting->port, 80);
  EXPECT_TRUE(meeting->tls);
  EXPECT_EQ(meeting->introduction, introduction);
  const auto one = bytes("one"), none = bytes("");
  const std::string sent = encode(Batch{.from = kDecode, .to = kPrefill, .messages = {one, none}});
  const auto batch = read_batch(sent);
  ASSERT_TRUE(batch.ok());
  EXPECT_EQ(batch->to, kPrefill);
  ASSERT_EQ(batch->messages.size(), 2U);
  EXPECT_TRUE(std::ranges::equal(batch->messages[0], one));
  EXPECT_TRUE(batch->messages[1].empty());
  const auto reply = read_reply(encode(Reply{.self = kPrefill, .known = true, .ready = false}));
  ASSERT_TRUE(reply.ok());
  EXPECT_TRUE(reply->known && !reply->ready && reply->self == kPrefill);
}

TEST(Message, WhatIsNoneIsRefusedAsAWhole) {
  const auto one = bytes("one");
  const std::string batch = encode(Batch{.from = kDecode, .to = kPrefill, .messages = {one}});
  const auto why = [](const std::string& text) { return read_batch(text).ok() ? "" : read_batch(text).error().message; };
  for (size_t n = 0; n < batch.size(); ++n) EXPECT_FALSE(read_batch(batch.substr(0, n)).ok()) << n;
  EXPECT_NE(why(batch + "x").find("behind its end"), std::string::npos);
  EXPECT_NE(why(encode(known(kPrefill))).find("another kind"), std::string::npos);
  std::string later = batch;
  later[4] = 9;
  EXPECT_NE(why(later).find("version is 9"), std::string::npos);
  EXPECT_FALSE(read_reply(encode(known({2, 0}))).ok());
  EXPECT_FALSE(read_meeting(encode(Meeting{.from = kDecode})).ok());  // nobody knows where it is called
  EXPECT_FALSE(read_meeting(encode(Meeting{.from = kDecode, .url = std::string(kMostUrlBytes + 1, 'x')})).ok());
  EXPECT_FALSE(
      read_batch(
          encode(Batch{.from = kDecode, .to = kPrefill, .messages = std::vector<std::span<const std::byte>>(kMostMessages + 1, one)}))
          .ok());
  // A count that promises what is not there takes no memory for it.
  std::string many = batch.substr(0, 6 + 24);
  many += "\xFF\x0F";
  many += std::string(2, '\0');
  EXPECT_NE(why(many).find("ends too early"), std::string::npos) << why(many);
}

TEST(Message, SpoiltBytesAreRefusedOrMeanSomething) {
  std::mt19937_64 random(test_seed());
  const auto introduction = bytes("memory");
  const std::string whole[] = {encode(Meeting{.from = kDecode, .url = "http://a", .port = 1, .introduction = introduction}),
                               encode(Batch{.from = kDecode, .to = kPrefill, .messages = {introduction, introduction}}),
                               encode(known(kPrefill))};
  for (int i = 0; i < 20000; ++i) {
    std::string text = whole[random() % 3];
    for (size_t n = 1 + random() % 3; n > 0; --n) text[random() % text.size()] = static_cast<char>(random());
    const auto m = read_meeting(text);
    EXPECT_TRUE(!m.ok() || encode(*m) == text);
    const auto b = read_batch(text);
    EXPECT_TRUE(!b.ok() || encode(*b) == text);
    const auto r = read_reply(text);
    EXPECT_TRUE(!r.ok() || encode(*r) == text);
  }
}

// A decode instance with one prefill instance in its list, which it has met at time 0.
struct Decode {
  Decode() : peers(kDecode) {
    peers.list("http://p", true, 0);
    const auto calls = peers.calls(0);
    EXPECT_TRUE(calls.size() == 1 && calls[0].meet);
    id = calls[0].peer;
    peers.answered(id, known(kPrefill), 0);
  }
  // The one call that is due.
  Peers::Call call(TimeMs now) {
    auto calls = peers.calls(now);
    EXPECT_EQ(calls.size(), 1U);
    return calls.empty() ? Peers::Call{} : std::move(calls[0]);
  }
  const Peer& peer() const { return peers.all().at(id); }
  Peers peers;
  PeerId id = 0;
};

TEST(Peers, AreMetThenCalledWithWhatWaits) {
  Decode d;
  EXPECT_EQ(d.peers.prefills(0), std::vector<pd::InstanceId>{2});
  EXPECT_TRUE(d.peers.knows(kPrefill));
  EXPECT_TRUE(d.peers.calls(1).empty());
  d.peers.queue({2, 0}, bytes("to whoever is there"));
  d.peers.queue(kPrefill, bytes("to this process"));
  d.peers.queue(kRestarted, bytes("to another process"));
  d.peers.queue(kOther, bytes("to nobody"));
  EXPECT_EQ(d.peers.stray(), 2);
  const Peers::Call call = d.call(1);
  EXPECT_EQ(call.to, kPrefill);
  EXPECT_EQ(call.messages.size(), 2U);
  d.peers.queue(kPrefill, bytes("while a call is under way"));
  EXPECT_TRUE(d.peers.calls(1).empty());
  d.peers.answered(d.id, known(kPrefill), 2);
  EXPECT_EQ(d.call(2).messages.size(), 1U);
  d.peers.answered(d.id, known(kPrefill), 3);
  EXPECT_TRUE(d.call(3 + kBeat).messages.empty());  // only to see whether it is there
}

TEST(Peers, AnotherProcessAtTheAddressMeansThatTheFirstIsGone) {
  Decode d;
  d.call(kBeat);
  d.peers.answered(d.id, {.self = kRestarted, .known = false, .ready = true}, kBeat);
  EXPECT_EQ(d.peers.take_gone(), std::vector<pd::Process>{kPrefill});
  EXPECT_TRUE(d.peers.take_gone().empty());
  EXPECT_TRUE(d.peers.prefills(kBeat).empty());
  EXPECT_TRUE(d.call(kBeat).meet);
  d.peers.answered(d.id, known(kRestarted), kBeat);
  EXPECT_TRUE(d.peers.knows(kRestarted));
  EXPECT_FALSE(d.peers.knows(kPrefill));
}

TEST(Peers, WhoHasForgottenIsMetAnewAndNotGone) {
  Decode d;
  d.call(kBeat);
  d.peers.answered(d.id, {.self = kPrefill, .known = false, .ready = true}, kBeat);
  EXPECT_TRUE(d.call(kBeat).meet);
  EXPECT_TRUE(d.peers.take_gone().empty());
}

TEST(Peers, OnlyRefusalsOverSomeTimeMeanAnEnd) {
  Decode d;
  TimeMs now = kBeat;
  d.call(now);
  d.peers.failed(d.id, true, "refused", now);
  EXPECT_TRUE(d.peers.take_gone().empty());
  d.call(now += kAgain);
  d.peers.failed(d.id, false, "silent", now);  // something listens again
  d.call(now += kAgain);
  d.peers.failed(d.id, true, "refused", now);
  EXPECT_TRUE(d.peers.take_gone().empty());
  for (int i = 0; i < 2; ++i) {
    d.call(now += kAgain);
    d.peers.failed(d.id, true, "refused", now);
  }
  EXPECT_EQ(d.peers.take_gone(), std::vector<pd::Process>{kPrefill});
  EXPECT_FALSE(d.peer().met);
  EXPECT_TRUE(d.call(now += kAgain).meet);  // whoever comes there next
}

TEST(Peers, SilenceIsNoEnd) {
  Decode d;
  for (TimeMs now = kBeat; now < 100 * kBeat; now += kBeat) {
    d.call(now);
    d.peers.failed(d.id, false, "silent", now);
  }
  EXPECT_TRUE(d.peers.take_gone().empty());
  EXPECT_EQ(d.peers.prefills(0), std::vector<pd::InstanceId>{2});  // its orders find out
}

TEST(Peers, ARouterNamesThemAgainAndAgain) {
  Peers peers(kDecode);
  peers.list("http://p", false, 0);
  const PeerId id = peers.calls(0).at(0).peer;
  peers.answered(id, known(kPrefill), 0);
  EXPECT_EQ(peers.prefills(kListed - 1).size(), 1U);
  EXPECT_TRUE(peers.prefills(kListed).empty());
  EXPECT_TRUE(peers.knows(kPrefill));  // what is open there goes on
  peers.list("http://p", false, kListed);
  EXPECT_EQ(peers.prefills(kListed).size(), 1U);
  peers.calls(kListed);
  peers.answered(id, {.self = kPrefill, .known = false, .ready = false}, kListed);
  EXPECT_EQ(peers.calls(kListed + 1).size(), 1U);
  peers.failed(id, false, "silent", kListed + 1);
  EXPECT_TRUE(peers.calls(3 * kListed).empty());
  EXPECT_TRUE(peers.all().empty());
}

TEST(Peers, WhoEndsGetsNoOrders) {
  Decode d;
  d.call(kBeat);
  d.peers.answered(d.id, known(kPrefill, false), kBeat);
  EXPECT_TRUE(d.peers.prefills(kBeat).empty());
  EXPECT_TRUE(d.peers.knows(kPrefill));
}

TEST(Peers, ADecodeProcessIntroducesItself) {
  Peers peers(kPrefill);
  EXPECT_TRUE(peers.introduced(kDecode, "http://d", 0));
  EXPECT_TRUE(peers.introduced(kDecode, "http://d", 1));
  EXPECT_TRUE(peers.take_gone().empty());
  peers.queue(kDecode, bytes("grant"));
  const auto calls = peers.calls(1);
  ASSERT_EQ(calls.size(), 1U);
  EXPECT_FALSE(calls[0].meet);
  // It is started again while the call is under way, whose answer is about the process before.
  const pd::Process again{kDecode.instance, kDecode.epoch + 1};
  EXPECT_TRUE(peers.introduced(again, "http://d", 2));
  EXPECT_EQ(peers.take_gone(), std::vector<pd::Process>{kDecode});
  peers.answered(calls[0].peer, known(kDecode), 3);
  EXPECT_TRUE(peers.take_gone().empty());
  EXPECT_TRUE(peers.knows(again));
  EXPECT_FALSE(peers.introduced(kDecode, "http://d", 4));  // of the past
  // Another instance at its address, and the same at another.
  EXPECT_TRUE(peers.introduced(kOther, "http://d", 5));
  EXPECT_EQ(peers.take_gone(), std::vector<pd::Process>{again});
  EXPECT_TRUE(peers.introduced({3, 31}, "http://e", 6));
  EXPECT_EQ(peers.take_gone(), std::vector<pd::Process>{kOther});
  EXPECT_EQ(peers.all().size(), 1U);
}

TEST(Peers, EverythingIsBounded) {
  Decode d;
  for (size_t i = 0; i < kMostQueued + 5; ++i) d.peers.queue(kPrefill, bytes("x"));
  EXPECT_EQ(d.peer().queue.size(), kMostQueued);
  EXPECT_EQ(d.peer().dropped, 5);
  EXPECT_EQ(d.call(0).messages.size(), kMostMessages);
  d.peers.answered(d.id, known(kPrefill), 0);
  const std::vector<std::byte> large(kMostBatchBytes);
  for (int i = 0; i < 20; ++i) d.peers.queue(kPrefill, large);
  EXPECT_EQ(d.peer().queued_bytes, kMostQueuedBytes);
  EXPECT_EQ(d.call(1).messages.size(), 1U);
  for (int i = 0; i < 100; ++i) d.peers.list("http://p" + std::to_string(i), false, 0);
  EXPECT_EQ(d.peers.all().size(), kMostPeers);
  Peers prefill(kPrefill);
  for (pd::InstanceId i = 10; i < 100; ++i) prefill.introduced({i, 1}, "http://d" + std::to_string(i), 0);
  EXPECT_EQ(prefill.all().size(), kMostPeers);
  EXPECT_TRUE(prefill.introduced({100, 1}, "http://late", kForgotten));  // the silent make room
  EXPECT_EQ(prefill.all().size(), kMostPeers);
}

}  // namespace
}  // namespace baton::fleet
