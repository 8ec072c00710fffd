// Who a process talks to: addresses, the processes that were met there, what waits to be sent, and when which of them is called. A state
// machine: time comes in, calls to make come out.
//
// A decode instance knows prefill instances by their URLs and meets whoever answers there; a prefill instance knows decode processes that
// have met it. Both call each other at least every kBeat, so that an end is noticed soon:
//
//   another process answers at the address, or nothing listens there, twice     the process that was met is gone
//   silence                                                                     nothing: it may come back, and may still write
//
// Messages may be lost: those of a call that fails, and those that a bounded queue has no room for.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fleet/message.h"

namespace baton::fleet {

using TimeMs = int64_t;  // of a clock that only goes forward
using PeerId = uint32_t;

inline constexpr size_t kMostPeers = 64;
inline constexpr TimeMs kBeat = 500;          // between two calls of a peer that was met
inline constexpr TimeMs kAgain = 200;         // until a call that failed is made again
inline constexpr TimeMs kListed = 10'000;     // that a URL which a router named stays one to order from
inline constexpr TimeMs kForgotten = 60'000;  // of silence, after which a peer makes room for another
inline constexpr TimeMs kRefusals = 300;      // between the first and the last refusal of a process that is gone, at least
inline constexpr size_t kMostQueued = 4096;   // messages for a peer
inline constexpr size_t kMostQueuedBytes = size_t{32} << 20;
inline constexpr size_t kMostBatchBytes = size_t{4} << 20;  // but for a single message that is longer

struct Peer {
  std::string url = {};
  bool fixed = false;  // of a list that was given at the start
  TimeMs listed = 0;   // by a router, the last time
  pd::Process process = {};
  bool met = false;
  bool ready = false;       // takes orders
  std::string why = {};     // it was not met, or does not answer
  bool calling = false;     // a call is under way
  pd::Process called = {};  // whom it is for
  TimeMs next_call = 0;
  TimeMs heard = 0;     // its last answer
  TimeMs refused = -1;  // since when nothing listens there; -1: something does, as far as is known
  std::deque<std::vector<std::byte>> queue = {};
  size_t queued_bytes = 0;
  int64_t sent = 0, dropped = 0, failed_calls = 0;
};

class Peers {
 public:
  explicit Peers(pd::Process self) : self_(self) {}

  // A prefill instance of a list; of a router's it has to be named again and again. Nothing where there is no room.
  void list(const std::string& url, bool fixed, TimeMs now);
  // A decode process that this prefill process has met, and where it is called. False where there is no room.
  bool introduced(pd::Process process, const std::string& url, TimeMs now);

  // Lost if nobody of this name is known, or too much waits.
  void queue(pd::Process to, std::span<const std::byte> message);

  struct Call {
    PeerId peer = 0;
    bool meet = false;  // else messages, or none
    pd::Process to = {};
    std::vector<std::vector<std::byte>> messages = {};
  };
  // What to call now; each has one of the following as its end.
  std::vector<Call> calls(TimeMs now);
  void answered(PeerId peer, const Reply& reply, TimeMs now);
  // `refused`: nothing listens there. `pause`: how long to leave it alone.
  void failed(PeerId peer, bool refused, std::string why, TimeMs now, TimeMs pause = kAgain);

  // Whether messages of this process are heard.
  bool knows(pd::Process process) const;
  // Processes that are gone, told once.
  std::vector<pd::Process> take_gone();
  // Prefill instances that may be ordered from.
  std::vector<pd::InstanceId> prefills(TimeMs now) const;
  const std::map<PeerId, Peer>& all() const { return peers_; }
  int64_t stray() const { return stray_; }  // messages for nobody

 private:
  Peer* find(const std::string& url);
  Peer* add(const std::string& url, TimeMs now);
  void lose(Peer& peer);
  bool is_listed(const Peer& p, TimeMs now) const { return p.fixed || now - p.listed < kListed; }

  const pd::Process self_;
  std::map<PeerId, Peer> peers_;
  PeerId next_ = 1;
  std::vector<pd::Process> gone_;
  int64_t stray_ = 0;
};

}  // namespace baton::fleet
