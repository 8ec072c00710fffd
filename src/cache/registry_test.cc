#include "cache/registry.h"

#include <gtest/gtest.h>

namespace baton::cache {
namespace {

TEST(Registry, ASnapshotIsTheStateOfASlotInOnePiece) {
  Registry r(1024, 4096);
  r.add({Home::kSlot, Lifetime::kState, 512, 128});
  r.add({Home::kSlot, Lifetime::kTail, 0, 300});
  r.add({Home::kPage, Lifetime::kTokens, 0, 1024});
  r.add({Home::kSlot, Lifetime::kState, 640, 64});    // touches the first
  r.add({Home::kSlot, Lifetime::kState, 1024, 100});  // apart
  r.add({Home::kSlot, Lifetime::kCycle, 2048, 2048});
  ASSERT_EQ(r.snapshot_copies().size(), 2U);
  EXPECT_EQ(r.snapshot_copies()[0].slot_offset, 512);
  EXPECT_EQ(r.snapshot_copies()[0].bytes, 192);
  EXPECT_EQ(r.snapshot_copies()[1].snapshot_offset, 192);
  EXPECT_EQ(r.snapshot_bytes(), 512);
  EXPECT_EQ(r.ranges().size(), 6U);
}

TEST(Registry, WithoutStateThereIsNoSnapshot) {
  Registry r(256, 256);
  r.add({Home::kPage, Lifetime::kTokens, 0, 256});
  EXPECT_EQ(r.snapshot_bytes(), 0);
}

TEST(RegistryDeathTest, RangesThatLeaveOrOverlapAreDefects) {
  Registry r(256, 256);
  EXPECT_DEATH(r.add({Home::kPage, Lifetime::kTokens, 200, 100}), "leaves");
  EXPECT_DEATH(r.add({Home::kSlot, Lifetime::kTokens, 0, 10}), "lifetime");
  r.add({Home::kSlot, Lifetime::kState, 100, 50});
  EXPECT_DEATH(r.add({Home::kSlot, Lifetime::kState, 149, 10}), "overlap");
  EXPECT_DEATH(r.add({Home::kSlot, Lifetime::kState, 60, 41}), "overlap");
}

}  // namespace
}  // namespace baton::cache
