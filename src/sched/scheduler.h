// The scheduler: which sequences run, in which memory, and what each cycle of the device does.
//
// A plain state machine: requests, completed cycles and the time go in; cycles and events come out. It owns no thread, lock, clock or
// device, so that the same code runs in production, in unit tests and under a simulator.
//
//   submit, cancel ->  [ waiting, by priority and arrival ] -> plan() -> cycle -> device -> complete() -> events
//
// * Admission is in order: a request that does not fit holds back those behind it, so none is overtaken forever. It gets a slot and pages
//   for its prompt and a window of output; pages for more come as it grows, so nobody pays for tokens that are never generated.
// * Every cycle advances all decoding sequences by a row, and prompts by `prefill_tokens` rows together: the oldest prompt gets half of
//   them at least, the rest goes to those with the least left, so that neither long nor short prompts wait for the others.
// * A decoding sequence without a page for its next row makes the last in order give way: its memory moves to the host, or, if that is
//   full, is computed again later. The first in order is never retracted, so there is always progress.
// * A page enters the tree when the rows of a completed cycle have filled it, and is not written after that. What a sequence held comes
//   back after its last launched cycle.
//
// Threads: one at a time. plan() and complete() allocate nothing in steady state.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "sched/cycle.h"
#include "sched/memory.h"
#include "sched/metrics.h"
#include "sched/sequence.h"

namespace baton::sched {

struct SchedulerOptions {
  MemorySizes memory;
  int64_t context_tokens = 0;     // longest prompt with its output; memory.pages hold it
  int64_t vocabulary = 0;         // ids go from 0 to vocabulary - 1
  int64_t prefill_tokens = 512;   // prompt rows of a cycle
  int64_t growth_tokens = 256;    // window of output that is reserved at admission and by each growth
  int64_t snapshot_tokens = 256;  // a snapshot is worth its memory if it is so far behind the one before it
  int32_t max_waiting = 1024;     // sequences in the queue that have not run yet
  bool cache_generated = true;    // pages of generated tokens may be reused, too
  int32_t drafts = 0;             // of a sequence in a cycle, at most; at most speculate::kMostDrafts
  bool adaptive_drafts = false;   // fewer where that gives more tokens per time
  int32_t look_ahead = 0;  // 1: what a page holds depends on the token behind it, too (MTP), and is shared only where that is the same
};

class Scheduler {
 public:
  static Result<std::unique_ptr<Scheduler>> create(const SchedulerOptions& options);

  // What can never run is refused here: kInvalid, naming the field. From any thread.
  static Status check(const RequestSpec& spec, const SchedulerOptions& options);
  // `spec` has passed check(). kExhausted if the queue is full; nothing is kept of it then.
  Status submit(RequestId id, RequestSpec spec, Time now);

  // A request whose prompt was computed elsewhere and is in memory already: its pages, of which the first tree_pages belong to the tree, a
  // lease on the last of these, and a slot with its state and last hidden row. All of that is the scheduler's from now on.
  struct LandedPrompt {
    int32_t slot = -1;
    std::vector<int32_t> pages;
    int32_t tree_pages = 0;
    cache::Node node = cache::kRoot;
    int64_t cached_tokens = 0;  // for its usage
    Time waited = 0;            // likewise
    bool reset_ring = true;     // the slot still has the replay ring of whoever had it before
  };
  // `spec` has passed check() and has one choice. Pages of the tree are known there by cache/page_name.h.
  void land(RequestId id, RequestSpec spec, LandedPrompt prompt, Time now);

  // Where a request that is prompt_only is, from its first event with `computed` to its end.
  struct Holding {
    int32_t slot;
    std::span<const int32_t> pages;
    int64_t cached_tokens;
  };
  Holding holding(RequestId id) const;
  // It is not needed any more: ends with kStop.
  void let_go(RequestId id);

  // Ends what is left of a request, in whatever state; no effect on one that is over.
  void cancel(RequestId id);
  // Ends one choice, of which a token has been delivered, as if that had been a stop token: for ends that the caller finds in the text.
  void stop(RequestId id, int32_t choice);

  // Plans the next cycle; false if there is nothing to do. At most kCyclesInFlight cycles may be planned and not completed.
  bool plan(Time now, Cycle& cycle);

  // The oldest planned cycle is done.
  void complete(const Drawn& drawn);
  void complete(std::span<const int32_t> tokens) { complete(Drawn{tokens, {}, {}}); }  // a token from each draw
  // What cycles take, for adaptive_drafts.
  void set_cycle_costs(const speculate::CycleCosts& costs) { cycle_costs_ = costs; }
  // It failed: every sequence that has run ends with kFailed, and the caches are emptied. Cycles that are planned already still end in
  // complete() or fail(); what comes of them is ignored.
  void fail();

  // Events since clear_events(), in order.
  std::span<const Event> events() const { return events_; }
  void clear_events() { events_.clear(); }

  // Cycles that were launched before a failed one was known are still to come back: nothing enters, and what is cached will not stay.
  bool failing() const { return memory_.completed() < failed_through_; }
  int32_t in_flight() const { return static_cast<int32_t>(planned_ - memory_.completed()); }
  bool idle() const { return requests_.empty() && in_flight() == 0; }
  // The next time at which plan() has something to do although nothing arrives: a deadline, or kNever.
  Time next_deadline() const { return deadlines_.empty() ? kNever : deadlines_.begin()->first; }
  const RequestSpec* find(RequestId id) const;

  int32_t flush_cache() { return memory_.flush(); }
  const Metrics& metrics() const { return metrics_; }
  const SchedulerOptions& options() const { return options_; }
  // For whoever brings prompts here that were computed elsewhere, from the scheduler's own pools.
  Memory& memory() { return memory_; }
  const Memory& memory() const { return memory_; }
  // Pages that should stay within reach: one for each sequence that will grow.
  int32_t growing() const;

  // Recomputes what is kept incrementally and stops the process on a difference. For tests; slow. `others`: what is held from the pools by
  // others than the scheduler.
  struct Others {
    int32_t pages = 0;
    int32_t slots = 0;
  };
  void check_invariants(const Others& others) const;
  void check_invariants() const { check_invariants(Others{}); }

 private:
  explicit Scheduler(const SchedulerOptions& options);
  Request& add_request(RequestId id, RequestSpec spec, Time now);
  void bind_landed(Cycle& cycle);
  void bind(const Sequence& s, Cycle& cycle);

  // What a planned cycle leaves to be done at its completion.
  struct Planned {
    struct End {  // of rows that are known to count
      Sequence* sequence;
      int64_t computed;  // positions in the caches when the cycle is done
    };
    struct Source {
      Sequence* sequence;
      bool decodes;    // the draw is from rows of drawn tokens
      int32_t drafts;  // how many of these may be drafts
    };
    struct Shot {
      Sequence* sequence;
      int32_t pages;  // of the prefix whose state it is
      int32_t snapshot;
      bool moves;  // along with a text, if a cycle ends there, which is not known yet
    };
    std::vector<End> ends;
    std::vector<Shot> shots;
    std::vector<Sequence*> forks;
    std::vector<Source> draws;
    std::vector<Sequence*> scores;
    void clear();
  };
  struct Order {
    bool operator()(const Sequence* a, const Sequence* b) const { return goes_before(*a, *b); }
  };

  // admission.cc
  void expire(Time now);
  void admit(Time now, Cycle& cycle);
  bool admit_new(Sequence& s, Cycle& cycle);
  bool admit_retracted(Sequence& s, Cycle& cycle);
  void start(Sequence& s, Cycle& cycle);
  int32_t match(const Sequence& s, int64_t limit_pages);
  bool take_for_admission(int64_t count);
  bool will_grow(const Sequence& s) const;
  void give_buffers(Sequence& s);

  // planning.cc
  void grow(Cycle& cycle);
  void grow(Sequence& s, Cycle& cycle);
  void retract(Sequence& s, Cycle& cycle);
  Sequence* last_retractable();
  void plan_decode(Cycle& cycle);
  void plan_prefill(Cycle& cycle);
  int64_t chunk_rows(const Sequence& s, int64_t most) const;
  void plan_chunk(Sequence& s, int64_t rows, Cycle& cycle);
  int32_t drafts_for(const Sequence& s) const;
  void plan_draw(Sequence& s, int32_t rows, bool decodes, int32_t drafts, Cycle& cycle);
  void plan_score(Sequence& s, const Rows& chunk, Cycle& cycle);
  void fork(Sequence& leader, int32_t rows, Cycle& cycle);
  bool worth_snapshot(const Sequence& s, int64_t edge) const;
  void take_snapshot(Sequence& s, Cycle& cycle);
  void move_snapshot(Sequence& s, Cycle& cycle);
  bool shoot(Sequence& s, int32_t pages, Cycle& cycle);
  void wait_for_edge(Sequence& s, Rows& rows, Cycle& cycle);
  void drop_moving(Sequence& s);
  bool may_move(const Sequence& s, int64_t edge) const;
  void complete(const Planned::Shot& shot);
  Planned& planned(int64_t cycle) { return planned_cycles_[static_cast<size_t>(cycle % kCyclesInFlight)]; }

  // completion.cc
  void cache_pages(Sequence& s, int64_t computed);
  void tell_computed(const Sequence& s, int64_t computed);
  void activate(Sequence& fork);
  void deliver(const Planned::Source& from, const Drawn& drawn, size_t draw);
  void deliver(Sequence& s, int32_t token, int32_t index);
  void finish(Sequence& s, FinishReason reason, int32_t token = -1, int32_t draw = -1);
  void finish_all(Request& r, FinishReason reason);
  void release(Sequence& s);
  void release_host(Sequence& s);
  void sweep();
  void erase(Sequence& s);

  // By which, with the token behind its last one if what a page holds depends on it, a page is known in the tree: cache/page_name.h.
  uint64_t tree_salt(const Sequence& s) const;
  int64_t shared_prompt_pages(const Request& r) const { return (r.prompt_tokens() - options_.look_ahead) / cache::kPageUnits; }
  int64_t rows_limit(const Sequence& s) const { return s.request->prompt_tokens() + s.max_drawn - 1; }
  int64_t pages_wanted(const Sequence& s) const;
  void edit_table(const Sequence& s, int32_t first, std::vector<TableEdit>& edits) const;
  void touch(Sequence& s) { s.last_cycle = planned_; }
  void update_gauges();

  SchedulerOptions options_;
  Memory memory_;
  Metrics metrics_;
  std::unordered_map<RequestId, std::unique_ptr<Request>> requests_;
  std::set<Sequence*, Order> waiting_;
  std::vector<Sequence*> running_;  // kPrefill, kAwaitFork, kDecode, in order of admission
  std::vector<Sequence*> draining_;
  std::set<std::pair<Time, RequestId>> deadlines_;  // of the requests that are not over
  std::vector<Event> events_;
  std::vector<TableEdit> pending_edits_;  // for the next cycle
  std::vector<Sequence*> landed_;         // since the last one
  Planned planned_cycles_[kCyclesInFlight];
  speculate::CycleCosts cycle_costs_;
  int64_t planned_ = 0;         // number of the last planned cycle, or of the one being planned
  int64_t failed_through_ = 0;  // no cycle up to this one leaves anything: it failed, or was launched before that was known
  Time now_ = 0;                // of the last plan()
  uint64_t arrivals_ = 0;
  int32_t never_run_ = 0;              // of the waiting sequences
  int32_t moving_ = 0;                 // unfinished sequences with a snapshot that moves along
  const Sequence* blocked_ = nullptr;  // did not fit when memory_.returns() was blocked_at_
  int64_t blocked_at_ = 0;

  // Scratch, sized once.
  std::vector<cache::Node> path_;
  std::vector<int32_t> pages_scratch_;
  std::vector<Sequence*> prefills_;
  std::vector<int64_t> grants_;
  int64_t growing_ = 0;  // running sequences that will want more pages; kept while admit() runs

  // Token and page lists of sequences that are gone, for those that are admitted next: they are large, and the system would be asked for
  // their memory and given it back each time.
  struct Buffers {
    std::vector<int32_t> tokens, pages;
  };
  std::vector<Buffers> spare_;
};

}  // namespace baton::sched
