#include "sim/sweep.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/test_seed.h"

namespace baton::sim {
namespace {

// In worlds where everything goes wrong, no invariant is broken. Other worlds every time; BATON_SEED and BATON_WORLDS choose them.
TEST(Sweep, NoInvariantIsBroken) {
  const char* wanted = std::getenv("BATON_WORLDS");
  const uint64_t seed = test_seed();
  const int64_t worlds = wanted != nullptr ? std::atoll(wanted) : 10;
  for (int64_t i = 0; i < worlds; ++i) {
    WorldOptions o;
    o.seed = seed + static_cast<uint64_t>(i);
    o.length = 600 * kSecond;
    ASSERT_EQ(run_apart(o).violation, "") << command_line(o);
  }
}

// Worlds in which something once went wrong, with what could go wrong then. 1005: a write that a partition had held up landed minutes after
// the death of its sender.
TEST(Sweep, WorldsThatWentWrongOnce) {
  for (const uint64_t seed : {1005}) {
    WorldOptions o;
    o.seed = seed;
    ASSERT_TRUE(fault_bit("device", o.without));
    EXPECT_EQ(run_apart(o).violation, "") << command_line(o);
  }
}

// Everything that may happen does, sooner or later: all transitions, all faults, and what is rare.
TEST(Sweep, EverythingHappens) {
  Tally tally;
  constexpr uint64_t kMostWorlds = 400;
  for (uint64_t seed = 1; seed <= kMostWorlds && (seed == 1 || !missing(tally).empty()); ++seed) {
    WorldOptions o;
    o.seed = seed;
    o.length = 600 * kSecond;
    const Outcome outcome = World(o).run();
    ASSERT_EQ(outcome.violation, "") << command_line(o);
    tally.add(outcome.tally);
  }
  std::printf("%s", describe(tally).c_str());
  EXPECT_EQ(missing(tally), "");
}

TEST(Sweep, ASeedIsACourseOfEvents) {
  WorldOptions o;
  o.seed = 5;
  o.length = 60 * kSecond;
  const Tally a = World(o).run().tally;
  const Tally b = World(o).run().tally;
  EXPECT_EQ(describe(a), describe(b));
  o.seed = 6;
  EXPECT_NE(describe(a), describe(World(o).run().tally));
}

TEST(Sweep, TheCommandLineSaysWhatIsLeftOut) {
  WorldOptions o;
  o.seed = 7;
  EXPECT_EQ(command_line(o), "baton simulate --seed 7");
  ASSERT_TRUE(fault_bit("loss", o.without) && fault_bit("skew", o.without));
  EXPECT_FALSE(fault_bit("gremlins", o.without));
  o.length = 1500 * kMillisecond;
  o.only_mishaps = std::vector<int32_t>();
  o.only_requests = std::vector<int32_t>{3, 4};
  EXPECT_EQ(command_line(o), "baton simulate --seed 7 --until-ms 1500 --without loss,skew --only-mishaps none --only-requests 3,4");
}

}  // namespace
}  // namespace baton::sim
