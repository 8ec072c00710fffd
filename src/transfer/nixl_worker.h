// The thread of a Nixl: everything that is done with the library, in one loop.
//
// A peer is connected when it is met, and again when a part is for it and the connection has failed. A connection that fails takes all with
// it that is under way on it. What cannot be ended is left to the system, and counted: nothing here waits for ever.
//
// Threads: its own, from the first line to the last; the mail is what others see.
#pragma once

#include <functional>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "transfer/nixl.h"
#include "transfer/nixl_agent.h"
#include "transfer/nixl_mail.h"
#include "transfer/route.h"

namespace baton::transfer {

class NixlWorker {
 public:
  NixlWorker(const NixlFunctions& library, const NixlOptions& options, Agent self, const Memory& memory, NixlMail& mail,
             std::function<void()> notify);
  // Until the mail says stop.
  void run();

 private:
  using Time = TransferClock::time_point;
  using Outcome = std::shared_ptr<std::optional<Status>>;

  // Somebody who can be written to, or could be before the connection failed.
  struct Peer {
    Introduction introduction;
    Route route;
    std::string name;  // of its agent; empty: not connected
    // Lists of the same pieces on both sides: page by page, then slot by slot, each cut into the slices of the route.
    NixlHandle own = nullptr, remote = nullptr, doormat = nullptr;
    bool met = false;
    // While it is being met: a first write is under way, or is not begun.
    NixlHandle greeting = nullptr;
    Time greeting_ends;
    std::vector<Outcome> waiting;
  };
  // A part that is under way.
  struct Under {
    Part part;
    Peer* peer = nullptr;
    NixlHandle request = nullptr;
    Time posted, ends;
    uint64_t checksum = 0;
    std::vector<std::byte> notice;  // framed
    // Of a part that is damaged on purpose: the second write, of wrong bytes, and its lists.
    bool damage = false;
    NixlHandle wrong_own = nullptr, wrong_remote = nullptr;
  };

  Status enter();
  Status connect(Peer& peer);
  // Fails what is under way to it.
  void disconnect(Peer& peer, Failure why);
  void forget(Agent agent);

  void carry_out(NewPart& order, Time now);
  void carry_out(NewPeer& order, Time now);
  void carry_out(GonePeer& order, Time now);
  NixlAgent::Progress start(Under& under);
  NixlAgent::Progress start_damage(Under& under);
  void poll_parts(Time now);
  void poll_greetings(Time now);
  void poll_notices();
  void met(Peer& peer, Status how);
  void over(const Under& under, bool ok, Failure why = Failure::kCount);
  void release(Under& under);
  void publish();
  bool busy(Time now) const;
  void leave();

  const NixlFunctions& library_;
  const NixlOptions options_;
  const Agent self_;
  const Memory memory_;
  NixlMail& mail_;
  const std::function<void()> notify_;

  std::unique_ptr<NixlAgent> agent_;
  std::byte* doormat_ = nullptr;  // of kDoormatBytes; the first half is for others, the second for what is written to them
  NixlHandle own_doormat_ = nullptr;
  std::map<Agent, Peer> peers_;
  std::list<Under> under_way_;
  int64_t started_ = 0;
  // Since they were published.
  std::vector<Arrival> arrivals_;
  std::vector<Completion> completions_;
  std::vector<std::pair<Outcome, Status>> outcomes_;
  std::vector<std::variant<Introduction, Agent>> changes_;  // who is met, who is gone
  Time last_active_;
  Metrics metrics_;  // all but `waiting` and `peers`
};

}  // namespace baton::transfer
