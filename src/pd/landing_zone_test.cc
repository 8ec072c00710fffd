#include "pd/landing_zone.h"

#include <gtest/gtest.h>

#include <numeric>

#include "pd/approximate_tree.h"

namespace baton::pd {
namespace {

std::vector<int32_t> tokens(int64_t count, int32_t first = 0) {
  std::vector<int32_t> t(static_cast<size_t>(count));
  std::iota(t.begin(), t.end(), first);
  return t;
}

struct Memory {
  explicit Memory(int32_t page_count, int32_t slot_count = 4, int32_t look_ahead = 0)
      : pages(page_count), slots(slot_count), tree(pages), zone(pages, slots, tree, look_ahead) {}
  cache::IdPool pages;
  cache::IdPool slots;
  cache::PrefixTree tree;
  LandingZone zone;
};

TEST(LandingZone, ReservesOnlyWhatIsMissing) {
  Memory m(10);
  Landing first;
  ASSERT_TRUE(m.zone.reserve(0, tokens(200), true, 0, first));
  EXPECT_EQ(first.matched_pages, 0);
  EXPECT_EQ(std::ssize(first.pages), 4);
  EXPECT_EQ(m.pages.held_count(), 4);
  EXPECT_EQ(m.tree.size(), 0) << "nothing is cached before it has arrived";
  m.zone.commit(0, tokens(200), true, first);
  EXPECT_EQ(m.tree.size(), 3);
  EXPECT_EQ(first.own_pages(), 1);

  Landing second;
  ASSERT_TRUE(m.zone.reserve(0, tokens(230), true, 0, second));
  EXPECT_EQ(second.matched_pages, 3);
  EXPECT_EQ(m.pages.held_count(), 2) << "the open pages of both";
  Landing other;
  ASSERT_TRUE(m.zone.reserve(1, tokens(64), true, 0, other));
  EXPECT_EQ(other.matched_pages, 0) << "another salt shares nothing";
  for (Landing* l : {&first, &second, &other}) m.zone.release(*l);
  EXPECT_EQ(m.pages.held_count() + m.slots.held_count() + m.tree.locked_count(), 0);
  m.tree.check_invariants();
}

TEST(LandingZone, AWholePromptMayMatchAndStillGetsASlot) {
  Memory m(4);
  Landing first, second;
  ASSERT_TRUE(m.zone.reserve(0, tokens(128), true, 0, first));
  m.zone.commit(0, tokens(128), true, first);
  ASSERT_TRUE(m.zone.reserve(0, tokens(128), true, 0, second));
  EXPECT_EQ(second.matched_pages, 2);
  EXPECT_EQ(second.own_pages(), 0);
  EXPECT_GE(second.slot, 0);
  EXPECT_EQ(m.slots.held_count(), 2);
}

TEST(LandingZone, PagesThatTheMatchLocksAreNotWithinReach) {
  Memory m(4);
  Landing l;
  ASSERT_TRUE(m.zone.reserve(0, tokens(192), true, 0, l));
  m.zone.commit(0, tokens(192), true, l);
  m.zone.release(l);
  ASSERT_EQ(m.tree.evictable_count(), 3);
  // Five pages, of which three match: one is free, and the three are not to be had for the other.
  EXPECT_FALSE(m.zone.reserve(0, tokens(320), true, 0, l));
  EXPECT_EQ(m.tree.locked_count(), 0);
  EXPECT_EQ(m.tree.size(), 3);
  EXPECT_FALSE(m.zone.reserve(5, tokens(64), true, 4, l)) << "what others keep within reach stays there";
  ASSERT_TRUE(m.zone.reserve(5, tokens(64), true, 3, l));
}

TEST(LandingZone, EqualPagesThatCameMeanwhileAreShared) {
  Memory m(8);
  Landing a, b;
  ASSERT_TRUE(m.zone.reserve(0, tokens(130), true, 0, a));
  ASSERT_TRUE(m.zone.reserve(0, tokens(130), true, 0, b));
  EXPECT_EQ(m.pages.held_count(), 6);
  m.zone.commit(0, tokens(130), true, a);
  m.zone.commit(0, tokens(130), true, b);
  EXPECT_EQ(m.tree.size(), 2);
  EXPECT_EQ(m.pages.held_count(), 2);
  EXPECT_EQ(a.pages[0], b.pages[0]);
  m.zone.release(a);
  m.zone.release(b);
  EXPECT_EQ(m.pages.held_count() + m.tree.locked_count(), 0);
}

TEST(LandingZone, ManyRequestsHoldTheirCommonBeginningOnce) {
  constexpr int32_t kRequests = 6;
  Memory m(32, kRequests);
  std::vector<Landing> all(kRequests);
  for (int32_t i = 0; i < kRequests; ++i) {
    std::vector<int32_t> prompt = tokens(64 * 5);
    for (int32_t k = 0; k < 128; ++k) prompt.push_back(1000 * (i + 1) + k);
    Landing& l = all[static_cast<size_t>(i)];
    ASSERT_TRUE(m.zone.reserve(0, prompt, true, 0, l));
    m.zone.commit(0, prompt, true, l);
  }
  EXPECT_EQ(m.tree.size(), 5 + kRequests * 2);
  EXPECT_EQ(m.slots.held_count(), kRequests);
}

// A page is shared where the token behind it is the same, too.
TEST(LandingZone, WithLookAheadTheTokenBehindAPageCounts) {
  Memory m(16, 4, 1);
  Landing a, b, c;
  ASSERT_TRUE(m.zone.reserve(0, tokens(128), true, 0, a));
  m.zone.commit(0, tokens(128), true, a);
  EXPECT_EQ(m.tree.size(), 1) << "nobody knows yet what is behind the second";
  std::vector<int32_t> other = tokens(129);
  other[64] = 7;
  ASSERT_TRUE(m.zone.reserve(0, other, true, 0, b));
  EXPECT_EQ(b.matched_pages, 0);
  other = tokens(129);
  other[65] = 7;
  ASSERT_TRUE(m.zone.reserve(0, other, true, 0, c));
  EXPECT_EQ(c.matched_pages, 1);
}

TEST(LandingZone, AForgottenMatchIsFreeAndTheReservedPagesAreNot) {
  Memory m(8);
  Landing a, b;
  ASSERT_TRUE(m.zone.reserve(0, tokens(128), true, 0, a));
  m.zone.commit(0, tokens(128), true, a);
  m.zone.release(a);
  ASSERT_TRUE(m.zone.reserve(0, tokens(200), true, 0, b));
  ASSERT_EQ(b.matched_pages, 2);
  m.zone.forget_match(b);
  EXPECT_EQ(m.tree.locked_count(), 0);
  EXPECT_EQ(b.own_pages(), 2);
  EXPECT_EQ(m.pages.held_count(), 2);
  m.zone.release(b);
  EXPECT_EQ(m.pages.held_count() + m.slots.held_count(), 0);
  m.tree.check_invariants();
}

TEST(LandingZone, PrivateRequestsLeaveNothing) {
  Memory m(4);
  Landing l;
  ASSERT_TRUE(m.zone.reserve(0, tokens(128), false, 0, l));
  m.zone.commit(0, tokens(128), false, l);
  EXPECT_EQ(l.own_pages(), 2);
  m.zone.release(l);
  EXPECT_EQ(m.pages.free_count(), 4);
}

TEST(ApproximateTree, RemembersWhatWasSentAndForgetsTheOldest) {
  ApproximateTree t(5);
  const auto a = page_keys(0, tokens(64 * 3)), b = page_keys(0, tokens(64 * 3, 7));
  t.remember(a);
  EXPECT_EQ(t.match(a), 3);
  EXPECT_EQ(t.match(page_keys(0, tokens(64 * 2 + 5))), 2);
  EXPECT_EQ(t.match(page_keys(1, tokens(64 * 3))), 0);
  t.remember(b);
  EXPECT_EQ(t.match(b), 3);
  EXPECT_EQ(t.match(a), 2) << "the end of the older path made room";
  t.correct(1);
  EXPECT_EQ(t.match(a), 1) << "its cache is smaller than it seemed";
  t.forget(std::span(b).subspan(1));
  EXPECT_EQ(t.match(b), 1);
  t.clear();
  EXPECT_EQ(t.size(), 0);
  EXPECT_EQ(t.match(a), 0);
}

}  // namespace
}  // namespace baton::pd
