#include "pd/wire.h"

#include <gtest/gtest.h>

#include <random>

#include "base/test_seed.h"

namespace baton::pd {
namespace {

// Every kind of message, with something in each field.
std::vector<Envelope> one_of_each() {
  const auto tokens = std::make_shared<const std::vector<int32_t>>(std::vector{7, 0, 154879});
  std::vector<Envelope> all;
  const auto add = [&all](Body body) { all.push_back({{1, uint64_t{1} << 40U}, {2, 3}, 17, std::move(body)}); };
  add(Order{.ticket = 5,
            .landing = 2,
            .salt = uint64_t{1} << 63U,
            .cache = false,
            .tokens = tokens,
            .matched_pages = 1,
            .pages = {3, 9},
            .slot = 4,
            .within = kNever});
  add(Cancel{6, 1});
  add(Ping{});
  add(Grant{-1});
  add(PartLanded{7, 1, 2, {3, 4, true}});
  add(Answer{8, 0, Outcome::kExpired, 12, {1, ~uint64_t{0}}});
  add(Drained{9, 3});
  return all;
}

TEST(Wire, WhatIsReadIsWhatWasWritten) {
  for (const Envelope& e : one_of_each()) {
    const std::vector<std::byte> bytes = encode(e);
    const auto back = decode(bytes);
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(back->from, e.from);
    EXPECT_EQ(back->to, e.to);
    EXPECT_EQ(back->low_water, 17U);
    EXPECT_EQ(back->body.index(), e.body.index());
    EXPECT_EQ(encode(*back), bytes);
  }
  const Envelope order = *decode(encode(one_of_each()[0]));
  const auto& o = std::get<Order>(order.body);
  EXPECT_EQ(*o.tokens, (std::vector{7, 0, 154879}));
  EXPECT_EQ(o.pages, (std::vector{3, 9}));
  EXPECT_FALSE(o.cache);
  EXPECT_EQ(o.within, kNever);
}

TEST(Wire, NothingButAWholeMessageIsOne) {
  for (const Envelope& e : one_of_each()) {
    std::vector<std::byte> bytes = encode(e);
    for (size_t n = 0; n < bytes.size(); ++n)
      EXPECT_FALSE(decode(std::span(bytes).first(n)).ok()) << n << " bytes of kind " << e.body.index();
    bytes.push_back(std::byte{0});
    EXPECT_NE(decode(bytes).error().message.find("behind its end"), std::string::npos);
  }
}

TEST(Wire, ProblemsAreNamed) {
  const auto problem = [](size_t at, uint8_t value, const Envelope& e) {
    std::vector<std::byte> bytes = encode(e);
    bytes.at(at) = std::byte{value};
    const auto r = decode(bytes);
    return r.ok() ? std::string() : r.error().message;
  };
  const std::vector<Envelope> all = one_of_each();
  constexpr size_t kHead = 6 + 12 + 12 + 8;
  EXPECT_NE(problem(0, 'X', all[0]).find("does not begin like one"), std::string::npos);
  EXPECT_NE(problem(4, 2, all[0]).find("its version is 2 and this program's 1"), std::string::npos);
  EXPECT_NE(problem(5, 7, all[0]).find("no kind 7"), std::string::npos);
  EXPECT_NE(problem(kHead + 11, 0x80, all[0]).find("negative"), std::string::npos);
  EXPECT_NE(problem(kHead + 20, 2, all[0]).find("neither 0 nor 1"), std::string::npos);
  EXPECT_NE(problem(kHead + 24, 0xFF, all[0]).find("longer than the message"), std::string::npos);
  EXPECT_NE(problem(kHead + 12, 3, all[5]).find("outcome"), std::string::npos);
}

TEST(Wire, SpoiltBytesAreRefusedOrAnotherMessage) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(::testing::Message() << "BATON_SEED=" << seed);
  std::mt19937 random(seed);
  const std::vector<Envelope> all = one_of_each();
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::byte> bytes = encode(all[random() % all.size()]);
    for (uint32_t n = 1 + random() % 3; n > 0; --n) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    const auto back = decode(bytes);
    if (back.ok()) {
      ASSERT_EQ(encode(*back), bytes);
    }
  }
}

}  // namespace
}  // namespace baton::pd
