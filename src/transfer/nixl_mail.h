// What goes between a Nixl and its thread.
//
// Threads: any; what is inside is under `mutex`.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "transfer/introduction.h"
#include "transfer/transport.h"

namespace baton::transfer {

using TransferClock = std::chrono::steady_clock;

struct NewPart {
  Part part;
  TransferClock::time_point posted;
};
struct NewPeer {
  Introduction introduction;
  // Set when it is known how it went; there is an error or none.
  std::shared_ptr<std::optional<Status>> outcome;
};
struct GonePeer {
  Agent agent;
};
using NixlOrder = std::variant<NewPart, NewPeer, GonePeer>;

class NixlMail {
 public:
  std::mutex mutex;
  std::condition_variable to_worker, to_owner;

  bool here() const { return entered.has_value() && entered->ok() && !stop; }

  // To the thread, in order.
  std::deque<NixlOrder> orders;
  bool stop = false;

  // From it.
  std::optional<Status> entered;
  std::vector<std::byte> introduction;
  std::map<Agent, Introduction> peers;  // that have been met
  std::vector<Arrival> arrivals;
  std::vector<Completion> completions;
  Metrics metrics;
  bool ended = false;
};

}  // namespace baton::transfer
