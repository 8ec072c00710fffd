#include "base/random.h"

#include <gtest/gtest.h>

#include <set>

namespace baton {
namespace {

// Known answers of philox4x32-10 that come with the Random123 library.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox(0, {0, 0, 0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~uint64_t{0}, {~0U, ~0U, ~0U, ~0U}), (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, CounterAndKeyBothMatter) {
  std::set<PhiloxBlock> seen;
  for (uint32_t i = 0; i < 64; ++i) {
    seen.insert(philox(i, {0, 0, 0, 0}));
    seen.insert(philox(uint64_t{i} << 32, {1, 0, 0, 0}));
    for (size_t word = 0; word < 4; ++word) {
      PhiloxBlock counter{7, 7, 7, 7};
      counter[word] = 100 + i;
      seen.insert(philox(3, counter));
    }
  }
  EXPECT_EQ(seen.size(), size_t{64} * 6);
}

TEST(UnitInterval, IsOpenAtBothEnds) {
  EXPECT_GT(unit_interval(0), 0.0F);
  EXPECT_LT(unit_interval(~0U), 1.0F);
  EXPECT_EQ(unit_interval(0x80000000U), 0.5F + 0x1p-24F);
}

}  // namespace
}  // namespace baton
