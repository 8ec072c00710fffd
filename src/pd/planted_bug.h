// Bugs that tests plant to see whether the simulator finds them: one a mistake that servers of this kind have made. Only builds with
// BATON_PLANTED_BUGS contain them; in every other one planted() is a constant false.
#pragma once

#include <cstdint>

namespace baton::pd {

enum class Bug : uint8_t {
  kNone,
  kLockKeptOnAbort,        // the lease of a matched path is not given back when its order ends early
  kForeignTicketAccepted,  // a message counts for whatever order now lies where its own did
  kTailNotSent,            // the open pool's keys stay behind
  kSlotSentEarly,          // the slot's contents are taken when the job is admitted, not when the prompt is computed
  kFreedOnCancel,          // memory is free when cancel is sent, not when it is confirmed
  kPartCountedTwice,       // a notification that comes twice counts twice
  kCachedEarly,            // pages enter the tree when they are reserved, not when they are filled
  kFoldCountKept,          // the slot keeps the replay ring of the request before
  kEpochIgnored,           // a peer that was started again passes for the one before
  kBudgetBeforeLock,       // pages that the match is about to lock count as evictable
  kMatchKeptOnFailure,     // what an order matched stays locked, and so stays cached, when the device fails
  kCount
};

#ifdef BATON_PLANTED_BUGS
inline Bug planted_bug = Bug::kNone;
inline bool planted(Bug bug) { return planted_bug == bug; }
#else
constexpr bool planted(Bug) { return false; }
#endif

}  // namespace baton::pd
