// Decode's end of the hand-over: which requests are ordered from which prefill instance, when, into which memory, and what became of it.
//
// A plain state machine. Requests, messages, results of checks and the time go in; actions come out: messages to send, landings to check,
// requests whose prompt has arrived, requests that are over.
//
// * A request waits in a bounded queue, in order of arrival, and holds no memory until some prefill process has credit for it and there
//   is room. Of the instances with credit the one with the least to compute is asked, by what it probably has cached and what it owes.
// * An order ends exactly once (states.h). Its memory is given back only when no write of it can land any more: when the prefill process
//   has said so (any Answer, or Drained), or when that process is known to be gone and the last of its writes must have arrived. Until
//   then it lies in quarantine.
// * A request whose order fails is ordered again, most_orders times in all, into other memory. Nothing of it was shown to anybody yet.
// * Everything is said again until it is answered: messages may be lost. A message counts only for the ticket that it names, between the
//   two processes that the order was made between.
//
// Threads: one at a time.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/result.h"
#include "pd/approximate_tree.h"
#include "pd/landing_zone.h"
#include "pd/message.h"
#include "pd/metrics.h"
#include "pd/states.h"

namespace baton::pd {

using RequestKey = uint64_t;  // chosen by the caller, never used twice
inline constexpr RequestKey kNoRequest = 0;

struct DecodeOptions {
  Process self;
  int32_t slots = 0;                   // of the slot pool: orders that may be open
  int32_t most_waiting = 256;          // requests without an order
  int32_t most_orders = 3;             // for a request, one after the other
  int32_t most_quarantined = 4;        // orders in quarantine, beyond which their prefill process gets no more
  int32_t remembered_pages = 65536;    // of the approximate tree of each prefill instance
  Time resend = 1'000'000'000;         // until something is said again, and between looks at a silent peer
  Time patience = 10'000'000'000;      // with a prefill process that says nothing
  Time order_limit = 120'000'000'000;  // for an order, whatever its process says
  Time linger = 2'000'000'000;         // in which the last writes of a process that is gone arrive
  Time most_wait = 300'000'000'000;    // in the queue
  Time most_alone = kNever;            // likewise, while no prefill process is there to order from
};

enum class EndReason : uint8_t { kCancelled, kDeadline, kFailed };

// What is to be done.
struct Send {
  Envelope envelope;
};
// Compute the checksums of what these parts brought, and tell verified(). The order lies still meanwhile.
struct Verify {
  Ticket ticket;
  int32_t landing;
  std::vector<PartRange> parts;
  std::span<const int32_t> pages;  // of the sequence; valid until the next call
};
// The request's prompt is there. The landing's memory, leases included, is the caller's from now on. `reset_ring`: the slot's replay ring
// is not part of a hand-over, and is to be empty.
struct Landed {
  RequestKey request;
  Landing landing;
  int32_t reused_pages = 0;  // that prefill had, and did not compute for it
  Time waited = 0;           // until the order was opened
  bool reset_ring = true;
};
// The request is over without its prompt. Each request has one Landed or one Ended.
struct Ended {
  RequestKey request;
  EndReason reason;
};
using DecodeAction = std::variant<Send, Verify, Landed, Ended>;

class DecodeEnd {
 public:
  // `zone` outlives it.
  DecodeEnd(const DecodeOptions& options, LandingZone& zone);

  void add_prefill(InstanceId instance);
  // Those that may be ordered from, from now on; who is new is added. What is open with others goes on. At most kMostPeers are known at
  // once: more than that are left out until those that are gone are forgotten.
  void set_prefills(std::span<const InstanceId> instances);
  static constexpr size_t kMostPeers = 256;

  struct Request {
    Tokens tokens = {};
    uint64_t salt = 0;
    bool cache = true;
    Time deadline = kNever;
  };
  // kExhausted if the queue is full; nothing is kept of it then.
  Status submit(RequestKey key, Request request, Time now);
  // Ends it, if it has neither landed nor ended.
  void cancel(RequestKey key, Time now);

  void receive(const Envelope& envelope, Time now);
  // The process is known to be gone (its host or its system says so, not its silence).
  void gone(Process process, Time now);
  void verified(Ticket ticket, int32_t landing, std::span<const uint64_t> checksums, Time now);
  // The own device failed, and nothing that lies cached is to be used again: no order goes on from what it matched. Their requests are
  // ordered anew; every lease is back, and what was reserved waits for the last writes. What has landed is the caller's.
  void device_failed(Time now);
  // Deadlines, repetitions, and new orders if `may_order`: for these `keep_pages` stay within reach of what decodes.
  void advance(Time now, int32_t keep_pages, bool may_order);
  // When advance() has something to do although nothing arrives; kNever if at no time.
  Time next_wake() const;

  std::span<DecodeAction> actions() { return actions_; }
  std::span<const DecodeAction> actions() const { return actions_; }
  void clear_actions() { actions_.clear(); }

  bool idle() const { return requests_.empty() && metrics_.open + metrics_.quarantined == 0; }
  const DecodeMetrics& metrics() const { return metrics_; }
  const Transitions<OrderState>& transitions() const { return transitions_; }
  // Pages and slots that orders hold.
  int32_t held_pages() const;
  int32_t held_slots() const;
  int32_t leases() const;
  // A write of this order may land in this page (-1: in the slot).
  bool may_be_written(Ticket ticket, int32_t landing, int32_t page) const;
  OrderState state(int32_t landing) const { return orders_[static_cast<size_t>(landing)].state; }
  void check_invariants() const;

 private:
  struct Waiting {
    Request request;
    std::vector<PageKey> keys;
    Time since = 0;
    int32_t orders = 0;
    int32_t landing = -1;  // of its order; -1: it is in the queue
  };
  struct Peer {
    Process process;
    int64_t granted = 0;
    int64_t opened = 0;
    Time heard = 0;
    Time next_ping = 0;
    bool silent = false;  // an order ran out of patience, and nothing was heard since
    bool gone = false;    // known to be; until the next epoch
    bool closed = false;  // gets no orders: it is not among those that may
    int32_t open = 0;
    int32_t quarantined = 0;
    int64_t owed_pages = 0;
    ApproximateTree tree;
  };
  struct OpenOrder {
    OrderState state = OrderState::kNone;
    Ticket ticket = 0;
    RequestKey request = kNoRequest;  // kNoRequest: it has ended meanwhile
    size_t peer = 0;
    Process process;
    Landing landing;
    Request asked;
    std::vector<PageKey> keys;
    int32_t believed_pages = 0;
    int32_t owed_pages = 0;
    std::vector<PartRange> parts;
    std::vector<bool> arrived;
    int32_t arrived_count = 0;
    std::optional<Answer> answer;
    OrderState ending = OrderState::kRevoked;  // what quarantine, or a check that nobody waits for, ends as
    Time next_send = 0;
    Time opened = 0;
    Time release_at = kNever;  // in quarantine of a process that is gone
  };

  // decode_end.cc: requests and time
  void end_request(RequestKey key, EndReason reason);
  void abandon(OpenOrder& o, OrderState ending, Time now);
  void retry(OpenOrder& o, Time now);
  void expire_waiting(Time now);
  void advance_order(OpenOrder& o, Time now);
  void open_orders(Time now, int32_t keep_pages);
  Peer* choose(const Waiting& w, int32_t& believed);
  bool wants_ping(const Peer& p) const;
  static bool is_there(const Peer& p) { return p.process.epoch != 0 && !p.gone && !p.silent && !p.closed; }
  Time alone_until(const Waiting& w) const;
  bool open_order(RequestKey key, Waiting& w, Peer& p, int32_t believed, Time now, int32_t keep_pages);

  // decode_orders.cc: orders and messages
  void handle(size_t peer, const Grant& m, Process from, Time now);
  void handle(size_t peer, const PartLanded& m, Process from, Time now);
  void handle(size_t peer, const Answer& m, Process from, Time now);
  void handle(size_t peer, const Drained& m, Process from, Time now);
  OpenOrder* find(Ticket ticket, int32_t landing, Process from);
  void restarted(size_t peer, Epoch epoch, Time now);
  void lost(OpenOrder& o, Time now);
  void try_verify(OpenOrder& o, Time now);
  bool complete(const OpenOrder& o) const;
  void settle(OpenOrder& o, OrderState end);
  void send_order(OpenOrder& o, Time now);
  void send_cancel(OpenOrder& o, Time now);
  void send(const Peer& p, Process to, Body body);
  Ticket low_water(const Peer& p) const;
  size_t index(const Peer& p) const { return static_cast<size_t>(&p - peers_.data()); }

  DecodeOptions options_;
  LandingZone& zone_;
  std::vector<Peer> peers_;
  std::unordered_map<RequestKey, Waiting> requests_;
  std::deque<RequestKey> queue_;
  std::vector<OpenOrder> orders_;  // by slot
  Ticket next_ticket_ = 1;
  Time alone_since_ = kNever;  // no prefill process is there; kNever: one is
  std::vector<DecodeAction> actions_;
  DecodeMetrics metrics_;
  Transitions<OrderState> transitions_;
};

}  // namespace baton::pd
