// Every planted bug is found, by the seeds in their order, and what is found can be made small.
#include <gtest/gtest.h>

#include <chrono>

#include "pd/planted_bug.h"
#include "sim/sweep.h"

namespace baton::sim {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

constexpr std::array kBugs = {
    std::pair{pd::Bug::kLockKeptOnAbort, "lock not released on abort"},
    std::pair{pd::Bug::kForeignTicketAccepted, "record of a previous ticket accepted"},
    std::pair{pd::Bug::kTailNotSent, "tail not sent"},
    std::pair{pd::Bug::kSlotSentEarly, "slot taken at admission"},
    std::pair{pd::Bug::kFreedOnCancel, "write after cancel into a reused page"},
    std::pair{pd::Bug::kPartCountedTwice, "a part counted twice"},
    std::pair{pd::Bug::kCachedEarly, "page in the tree before commit"},
    std::pair{pd::Bug::kFoldCountKept, "stale fold count"},
    std::pair{pd::Bug::kEpochIgnored, "wrong epoch of a restarted peer"},
    std::pair{pd::Bug::kBudgetBeforeLock, "budget computed before locking"},
    std::pair{pd::Bug::kMatchKeptOnFailure, "match kept when the device fails"},
};
static_assert(kBugs.size() + 1 == static_cast<size_t>(pd::Bug::kCount));

TEST(Planted, EveryBugIsFoundWithinAMinute) {
  for (const auto& [bug, what] : kBugs) {
    pd::planted_bug = bug;
    const Clock::time_point start = Clock::now();
    WorldOptions o;
    Outcome outcome;
    for (o.seed = 1; outcome.violation.empty() && seconds_since(start) < 60; ++o.seed) {
      o.length = 600 * kSecond;
      outcome = run_apart(o);
    }
    EXPECT_NE(outcome.violation, "") << what << " was not found";
    std::printf("%-40s seed %2lu, %6.2f s: %s\n", what, o.seed - 1, seconds_since(start), outcome.violation.c_str());
  }
  pd::planted_bug = pd::Bug::kNone;
}

TEST(Planted, AFailureIsMadeSmall) {
  pd::planted_bug = pd::Bug::kTailNotSent;
  WorldOptions o;
  o.length = 120 * kSecond;
  Outcome outcome;
  for (o.seed = 1; outcome.violation.empty(); ++o.seed) outcome = run_apart(o);
  --o.seed;
  const WorldOptions small = shrink(o, outcome, 60);
  EXPECT_NE(run_apart(small).violation, "");
  ASSERT_TRUE(small.only_requests.has_value());
  EXPECT_LE(small.only_requests->size(), 3U) << command_line(small);
  EXPECT_LT(small.length, o.length);
  std::printf("%s\n", command_line(small).c_str());
  pd::planted_bug = pd::Bug::kNone;
}

}  // namespace
}  // namespace baton::sim
