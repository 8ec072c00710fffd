// A cell: instances behind one router, a load on them, and what its users would see. The scheduler, the caches, both ends of the hand-over
// and the router's choice are the real ones; devices and links take the time that a cost model says, and nothing fails by itself.
//
// A simulated token may stand for `grain` real ones: pages, chunks, prompts and answers are that much coarser, and large fleets with long
// prompts fit into memory and time. A decode step is a cycle, or as many of them as give that many tokens.
//
// Threads: one. Two cells share nothing but what they only read.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "load/record.h"
#include "load/workload.h"
#include "router/fleet.h"
#include "sim/cost.h"
#include "sim/histogram.h"
#include "sim/node.h"

namespace baton::sim {

// Of one kind. Tokens are real ones; memory is counted in pages of 64 real tokens.
struct InstanceShape {
  sched::MemorySizes memory;
  int64_t chunk = 8192;           // rows of prompts in a cycle
  int64_t snapshot_tokens = 256;  // see sched::SchedulerOptions
  std::shared_ptr<const CostModel> cost;
};

struct CellOptions {
  int32_t prefills = 0;  // 0: every instance computes its own prompts
  int32_t decodes = 1;   // with `prefills` at most router::kMostInstances
  InstanceShape prefill, decode;
  int64_t context_tokens = 0;  // longest prompt with its answer
  int64_t grain = 1;
  double accepted = 1;                    // tokens that a cycle yields for each sequence
  int32_t most_waiting = 1024;            // requests in the queue of an instance
  bool share_on_decode = true;            // decode goes on from pages that others brought; false: every order moves a whole prompt
  double page_bytes = 0, slot_bytes = 0;  // of 64 tokens, and of a state with what belongs to it
  double link = 50e9;                     // bytes a second that a prefill instance sends
  Time message = 200'000;                 // between any two processes, one way
  uint64_t seed = 0;
  int64_t concurrency = 0;  // conversations at once; 0: no limit
};

// What one instance did.
struct Use {
  bool prefills = false, decodes = false;
  double busy = 0;  // share of the time
  int64_t cycles = 0;
  int64_t requests = 0, prompt_tokens = 0, cached_tokens = 0;  // prompts that came to its scheduler
  int64_t retractions = 0;
  double mean_running = 0;  // sequences, over cycles
};

struct CellResult {
  std::vector<load::Record> records;  // by turn, in the order of the workload; `chunks` are the first piece and the last
  Histogram gaps;                     // between pieces, ms
  std::vector<double> output_per_second;
  std::vector<Use> instances;
  int64_t events = 0, most_at_once = 0, orders = 0, retried_orders = 0;
};

class Cell final : public Surroundings {
 public:
  // Both outlive it. `arrivals` in seconds, one for each conversation, or none: a closed loop.
  Cell(const CellOptions& options, const load::Workload& workload, const std::vector<double>& arrivals);
  CellResult run();

 private:
  struct Instance {
    std::unique_ptr<Node> node;
    const InstanceShape* shape = nullptr;
    bool prefills = false, decodes = false;
    Time busy = 0, link_free = 0;
    int64_t cycles = 0;
    double running = 0;
  };
  struct Event {
    Time at;
    uint64_t order;
    std::function<void()> act;
  };
  struct Client {
    int64_t conversation = 0, turn = 0;
    Time intended = 0, sent = 0, first = 0, last = 0, ended = 0;
    int64_t tokens = 0, left = 0;
    int64_t cached = 0;
    int32_t instance = -1;
    std::vector<int> tried;
    const char* failure = nullptr;
  };

  // Surroundings
  Time now() const override { return now_; }
  void later(pd::Process, Time at, std::function<void()> act) override { put(at, std::move(act)); }
  void send(const pd::Envelope& envelope) override;
  void post(pd::Process from, const pd::Write& write) override;
  Time cycle_time(pd::Process process, const sched::Cycle& cycle) override;
  Time check_time(pd::Process, const pd::Verify&) override { return kMillisecond / 2; }
  void token(pd::RequestKey key, int32_t token) override;
  void end(pd::RequestKey key, sched::FinishReason reason, int64_t cached_tokens) override;

  void put(Time at, std::function<void()> act);
  NodeOptions node_options(const InstanceShape& shape, int32_t i) const;
  void arrive(size_t conversation);
  void begin(size_t conversation, Time intended);
  void turn(int64_t conversation, int64_t turn, Time intended);
  sched::RequestSpec spec_of(const load::Turn& turn, pd::RequestKey key) const;
  void route(pd::RequestKey key, std::shared_ptr<const sched::RequestSpec> spec);
  void leave_router(pd::RequestKey key, router::Outcome outcome);
  void finish(pd::RequestKey key, const char* failure);
  int64_t coarse(int64_t tokens) const { return (tokens + options_.grain - 1) / options_.grain; }
  Instance& at(pd::InstanceId id) { return instances_[id - 1]; }
  router::TimeMs now_ms() const { return now_ / kMillisecond; }
  CellResult result() const;

  CellOptions options_;
  const load::Workload& workload_;
  const std::vector<double>& arrivals_;
  double cycles_ = 1;                // of a step
  std::vector<Instance> instances_;  // decode first: the router's numbers are theirs
  router::Fleet fleet_;
  std::vector<Event> queue_;     // a heap
  std::vector<Client> clients_;  // by key - 1
  uint64_t ordered_ = 0;
  Time now_ = 0;
  size_t next_ = 0;                            // conversation that has not begun
  std::vector<std::pair<size_t, Time>> held_;  // arrived, and there is no place
  size_t held_taken_ = 0;
  int64_t conversations_ = 0, at_once_ = 0;
  CellResult seen_;
};

}  // namespace baton::sim
