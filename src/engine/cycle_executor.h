// Who runs cycles: a device, or a stand-in for one. Cycles are run in the order of their launch; results come back in the same order.
//
// Threads: launch() and poll() are for the engine thread alone; an executor may have threads of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/constraint.h"
#include "ops/head.h"
#include "sched/cycle.h"

namespace baton::engine {

// Whom a slot draws for.
struct BoundChoice {
  const sched::RequestSpec* request = nullptr;
  Constraint* constraint = nullptr;  // of this choice; null: none
};

// Where the time of cycles has gone, in nanoseconds.
struct CycleTimes {
  int64_t fold = 0;    // rows of the cycle before that count become the state
  int64_t draft = 0;   // guesses
  int64_t verify = 0;  // the target's rows, of prompts and of decoding
  int64_t accept = 0;  // logits, draws, and how many of them count
  int64_t commit = 0;  // what the drafter keeps of rows that count
  int64_t all = 0;     // everything, moves and scores included

  void add(const CycleTimes& o) {
    fold += o.fold;
    draft += o.draft;
    verify += o.verify;
    accept += o.accept;
    commit += o.commit;
    all += o.all;
  }
};

struct CycleResult {
  struct Problem {
    int32_t draw;  // index into `tokens`
    Error error;
  };
  struct Score {
    int32_t position = 0;                // of the first of the tokens
    std::vector<float> logprobs;         // by token; NaN where the logits are not numbers
    std::vector<ops::TokenLogprob> top;  // [tokens, the request's prompt_logprobs]
  };

  bool failed = false;
  std::string error;                   // why, if it failed
  std::vector<int32_t> tokens;         // draw by draw: tokens, or negative values of ops/head.h or sched/cycle.h
  std::vector<int32_t> ends;           // by draw: behind the last of its tokens; empty: each has one
  std::vector<int32_t> drafted;        // by draw: how many drafts were verified; empty: none
  std::vector<float> logprobs;         // by token; meaningful where the request asks
  std::vector<ops::TokenLogprob> top;  // [tokens, top_stride], likewise
  int32_t top_stride = 0;
  std::vector<Problem> problems;  // why tokens are sched::kConstraintFailed
  std::vector<Score> scores;      // by score of the cycle, reused from cycle to cycle: there may be more than it has
  CycleTimes times;

  std::span<const ops::TokenLogprob> top_of(int32_t token) const {
    return std::span(top).subspan(static_cast<size_t>(token) * static_cast<size_t>(top_stride), static_cast<size_t>(top_stride));
  }
};

class CycleExecutor {
 public:
  virtual ~CycleExecutor() = default;

  // Starts a cycle, or puts it behind those that run; at most sched::kCyclesInFlight at once. Copies what it needs of `cycle`.
  // bound[i] belongs to cycle.binds[i]; what it points to stays valid until a result has come back for every cycle that draws for it.
  virtual void launch(const sched::Cycle& cycle, std::span<const BoundChoice> bound) = 0;

  // The oldest result, valid until the next poll(); nullptr while it is not there.
  virtual const CycleResult* poll() = 0;

  // `notify` is called, from any thread, when a result is there. Set before the first launch.
  virtual void on_result(std::function<void()> notify) = 0;
};

}  // namespace baton::engine
