// A transport whose peers are other processes: they do not find each other by themselves, but are introduced.
//
// Each process, once it has entered, has an introduction: bytes that say who it is, how its memory is laid out and how to reach it. Whoever
// writes needs that of whom it writes to, and not the other way round. How the bytes get there is the caller's business: they are no secret
// among instances that trust each other, they are checked as a whole, and they mean nothing once the process is gone.
//
//   decode                                  prefill
//   transport.enter(self, memory)           transport.enter(self, memory)
//   transport.introduction()  -- bytes -->  transport.meet(bytes)
//                                           transport.post({.to = decode, ...})
//
// Threads: introduction(), meet() and part_with() from any thread, beside the one that posts; what else there is as for every Transport.
#pragma once

#include <span>
#include <vector>

#include "transfer/transport.h"

namespace baton::transfer {

inline constexpr int64_t kMostIntroductionBytes = int64_t{1} << 20;

class RemoteTransport : public Transport {
 public:
  // Behind enter(), and the same until leave(). Begins with a version; every field is checked by who reads it.
  virtual std::vector<std::byte> introduction() const = 0;

  // From here on it can be posted to this process, whose name is returned. Connects, and writes to it once, so that the first part pays for
  // nothing: waits, a bounded time (some seconds at most). Whoever is met again is as before; where parts to it had failed, it is connected
  // anew. An earlier process of the same instance is parted with.
  //   kInvalid      no introduction, of another version, transport, model or layout, of this process itself, or of a process that has been
  //                 followed by a later one of its instance
  //   kIo           the process does not answer; it may have ended, or be stopped
  //   kNotFound     this end has not entered, or has left
  virtual Result<Agent> meet(std::span<const std::byte> introduction) = 0;

  // The process is known to be gone, or nothing more is to be sent to it: parts that are posted to it end as failed, and it can be posted
  // to only when it has been met again. Does not wait. No harm where it has not been met.
  virtual void part_with(Agent agent) = 0;
};

}  // namespace baton::transfer
