// Which prefill instances a decode end orders from, as that changes, and what becomes of requests when there is none.
#include <gtest/gtest.h>

#include "pd/decode_end.h"

namespace baton::pd {
namespace {

constexpr Process kSelf{1, 1};
constexpr Time kPatience = 1000;

struct World {
  World() : pages(64), slots(4), tree(pages), zone(pages, slots, tree), end(options(), zone) {}
  static DecodeOptions options() {
    DecodeOptions o{.self = kSelf, .slots = 4};
    o.resend = 10;
    o.most_alone = kPatience;
    return o;
  }
  void prefills(std::vector<InstanceId> instances) { end.set_prefills(instances); }
  void grant(Process from, Time now) { end.receive({from, kSelf, 0, Grant{8}}, now); }
  void submit(RequestKey key, Time now) {
    ASSERT_TRUE(end.submit(key, {.tokens = std::make_shared<const std::vector<int32_t>>(100, static_cast<int32_t>(key))}, now).ok());
  }
  // Whom orders and pings went to, and the requests that ended.
  void advance(Time now) {
    ordered.clear(), pinged.clear(), ended.clear();
    end.advance(now, 0, true);
    for (const DecodeAction& a : end.actions()) {
      if (const auto* send = std::get_if<Send>(&a)) {
        if (std::holds_alternative<Order>(send->envelope.body)) ordered.push_back(send->envelope.to.instance);
        if (std::holds_alternative<Ping>(send->envelope.body)) pinged.push_back(send->envelope.to.instance);
      }
      if (const auto* e = std::get_if<Ended>(&a)) ended.push_back(e->request);
    }
    end.clear_actions();
    end.check_invariants();
  }
  using Ids = std::vector<InstanceId>;

  cache::IdPool pages, slots;
  cache::PrefixTree tree;
  LandingZone zone;
  DecodeEnd end;
  Ids ordered, pinged;
  std::vector<RequestKey> ended;
};
using Ids = World::Ids;

TEST(PrefillList, OrdersGoToThoseOfTheListAlone) {
  World w;
  w.prefills({2, 3});
  w.advance(0);
  EXPECT_EQ(w.pinged, (Ids{2, 3}));
  w.grant({2, 1}, 1);
  w.grant({3, 1}, 1);
  w.prefills({3});
  for (RequestKey key = 1; key <= 2; ++key) {
    w.submit(key, 2);
    w.advance(2);
    EXPECT_EQ(w.ordered, Ids{3});
  }
  w.prefills({2});
  w.submit(3, 3);
  w.advance(3);
  EXPECT_EQ(w.ordered, Ids{2});
  // What is open with one that left the list goes on, and is said again.
  w.prefills({});
  w.submit(4, 4);
  w.advance(50);
  EXPECT_EQ(w.ordered.size(), 3U);
  EXPECT_EQ(w.end.metrics().waiting, 1);
}

TEST(PrefillList, ARequestEndsWhenNobodyHasBeenThereForItsTime) {
  World w;
  w.submit(1, 0);
  w.advance(0);
  EXPECT_EQ(w.end.next_wake(), kPatience);
  w.submit(2, 500);
  w.advance(kPatience);
  EXPECT_EQ(w.ended, std::vector<RequestKey>{1});
  EXPECT_EQ(w.end.next_wake(), 500 + kPatience);
  // Somebody comes: what waits is ordered, however long it has waited.
  w.prefills({2});
  w.grant({2, 1}, 1400);
  w.advance(1400);
  EXPECT_TRUE(w.ended.empty());
  EXPECT_EQ(w.ordered, Ids{2});
  // It goes: the request waits anew, from then on.
  w.end.gone({2, 1}, 5000);
  w.advance(5000);
  EXPECT_TRUE(w.ended.empty());
  w.advance(5000 + kPatience - 1);
  EXPECT_TRUE(w.ended.empty());
  w.advance(5000 + kPatience);
  EXPECT_EQ(w.ended, std::vector<RequestKey>{2});
}

TEST(PrefillList, PlacesOfThoseThatHaveLeftAreUsedAgain) {
  World w;
  for (InstanceId i = 2; i < 2000; ++i) {
    w.prefills({i});
    w.grant({i, 1}, i);
  }
  w.submit(1, 2000);
  w.advance(2000);
  EXPECT_EQ(w.ordered, Ids{1999});
}

}  // namespace
}  // namespace baton::pd
