// A world: clients, decode and prefill instances, a network between them, and what goes wrong. One seed, one course of events.
//
// After every event the invariants of the instance that it concerned are checked. The world ends with the first thing that is wrong, or an
// hour later, when nothing new comes, all faults are mended, and everything has to come to rest.
//
// Threads: one. Two worlds share nothing.
#pragma once

#include <fmt/format.h>

#include <array>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "sim/fault.h"
#include "sim/node.h"
#include "sim/random.h"

namespace baton::sim {

struct WorldOptions {
  uint64_t seed = 1;
  Time length = 3600 * kSecond;
  uint32_t without = 0;  // faults that are left out, a bit each
  // Of the mishaps and requests that the seed brings only these, by number; to find out which of them matter.
  std::optional<std::vector<int32_t>> only_mishaps;
  std::optional<std::vector<int32_t>> only_requests;
  int32_t deep_every = 16;  // events between two checks that recompute everything
  bool trace = false;       // tell what happens, on standard output
};

// What happened, in numbers.
struct Tally {
  int64_t worlds = 0, events = 0, deep_checks = 0;
  int64_t requests = 0, completed = 0, cancelled = 0, expired = 0, failed = 0, refused = 0, lost = 0, unserved = 0;
  int64_t tokens = 0, messages = 0, writes = 0, pages_written = 0;
  std::array<int64_t, kFaultKinds> faults{};
  int64_t late_landings = 0;  // writes that landed for an order in quarantine
  int64_t after_death = 0;    // writes that landed after the death of who wrote them
  int64_t orders = 0, retried = 0, mismatches = 0, stray_messages = 0, peers_restarted = 0;
  int64_t pages_matched = 0, pages_ordered = 0;
  int64_t cycles = 0, retractions = 0, evictions = 0, reused_tokens = 0;
  pd::Transitions<pd::OrderState> orders_moved;
  pd::Transitions<pd::JobState> jobs_moved;

  int64_t fault_count() const;
  void add(const Tally& other);
};

struct Outcome {
  std::string violation;  // empty: none
  Time at = 0;
  Tally tally;
  int32_t mishap_count = 0, request_count = 0;  // that came to pass
};

class World final : public Surroundings {
 public:
  explicit World(const WorldOptions& options);
  Outcome run();

 private:
  struct Instance {
    NodeOptions options;
    std::unique_ptr<Node> node;  // nullptr: down
    pd::Epoch epoch = 0;
    bool decodes = false;
    Time hung_until = 0;
    Time slow_until = 0;
    int64_t slowness = 1;
    int32_t unchecked = 0;  // events since the last deep check
  };
  struct Client {
    sched::RequestSpec spec;
    pd::Process where;
    Prefix prefix = 0;  // of the prompt and the tokens that came
    int64_t tokens = 0;
    int32_t tries = 0;
    bool cancelled = false;
    bool hurried = false;  // its deadline may well pass
    Time since = 0;
  };
  struct Event {
    Time at;
    uint64_t order;
    int32_t instance;  // whose event it is; -1: the world's
    pd::Epoch epoch;   // of its process; 0: whichever there is
    std::function<void()> act;
  };
  struct Posted {
    pd::Process from;
    pd::Write write;
    std::vector<PageContent> pages;  // as it was when it was posted
    SlotContent slot;
    uint64_t checksum = 0;
    bool late = false;
  };

  // Surroundings
  Time now() const override { return now_; }
  void later(pd::Process process, Time at, std::function<void()> act) override;
  void send(const pd::Envelope& envelope) override;
  void post(pd::Process from, const pd::Write& write) override;
  Time cycle_time(pd::Process process, const sched::Cycle& cycle) override;
  Time check_time(pd::Process process, const pd::Verify& what) override;
  void token(pd::RequestKey request, int32_t token) override;
  void end(pd::RequestKey request, sched::FinishReason reason, int64_t cached_tokens) override;

  // world.cc
  Time on_device(pd::Process process, Time usual);
  void put(Time at, int32_t instance, pd::Epoch epoch, std::function<void()> act);
  void step();
  void start(int32_t instance);
  void rest();
  void fail(const std::string& what);
  void check(int32_t instance);
  void collect(const Node& node);
  template <class... Arguments>
  void trace(fmt::format_string<Arguments...> format, Arguments&&... arguments) const {
    if (!options_.trace) return;
    fmt::print("{:>12.6f}  ", static_cast<double>(now_) / static_cast<double>(kSecond));
    fmt::print(format, std::forward<Arguments>(arguments)...);
    fmt::print("\n");
  }
  int32_t index(pd::InstanceId id) const { return static_cast<int32_t>(id) - 1; }
  Instance& at(int32_t i) { return instances_[static_cast<size_t>(i)]; }
  bool is_up(pd::Process p) { return at(index(p.instance)).node != nullptr && at(index(p.instance)).epoch == p.epoch; }

  // clients.cc
  void next_request();
  sched::RequestSpec draw_request(Random& r, Client& c) const;
  void submit(pd::RequestKey key);
  void forget_clients_of(pd::Process process);

  // network.cc
  void deliver(const pd::Envelope& envelope, Time delay);
  void land(const Posted& posted);
  void write(const Posted& posted, DecodeNode& to);
  void over(const Posted& posted, bool ok);
  void happen(const Mishap& m);
  void crash(const Mishap& m);
  Time parted_until(int32_t a, int32_t b) const;
  bool chance(Fault fault);

  WorldOptions options_;
  Climate climate_;
  std::vector<Instance> instances_;  // decode first
  std::vector<Event> queue_;         // a heap
  uint64_t ordered_ = 0;
  Time now_ = 0;
  bool resting_ = false;
  std::map<std::pair<int32_t, int32_t>, Time> parted_;
  std::unordered_map<pd::RequestKey, Client> clients_;
  Random arrivals_;
  Random luck_;
  int32_t requests_ = 0;
  std::vector<std::vector<int32_t>> stems_;
  int64_t corruptions_ = 0;
  int64_t mismatches_ = 0;  // of processes that are gone
  std::string violation_;
  Tally tally_;
};

}  // namespace baton::sim
