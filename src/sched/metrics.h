// Counters and gauges of the scheduler. Gauges are as of the last plan or completion; all are zero again when nothing is left to do,
// but for counters (which only grow) and what the caches keep.
#pragma once

#include <cstdint>

#include "speculate/metrics.h"

namespace baton::sched {

struct Metrics {
  // Requests, counted once each.
  int64_t submitted = 0;
  int64_t refused = 0;    // the queue was full
  int64_t completed = 0;  // all choices stopped or reached their length
  int64_t cancelled = 0;
  int64_t expired = 0;  // deadline
  int64_t failed = 0;

  // Sequences (choices) now.
  int64_t waiting = 0;
  int64_t retracted = 0;  // of the waiting ones, those that have run before
  int64_t prefilling = 0;
  int64_t decoding = 0;
  int64_t draining = 0;  // ended, but a launched cycle still touches them

  // Pools now.
  int64_t slots = 0, slots_free = 0;
  int64_t pages = 0, pages_free = 0, pages_held = 0, pages_cached = 0;
  int64_t snapshots = 0, snapshots_cached = 0, snapshots_held = 0;
  int64_t host_slots = 0, host_slots_free = 0;
  int64_t host_pages = 0, host_pages_free = 0;

  // Tokens.
  int64_t prompt_tokens = 0;         // of admitted requests
  int64_t tokens_matched_kv = 0;     // of these, whose pages were found
  int64_t tokens_matched_state = 0;  // of these, whose state was found too: not computed again
  int64_t tokens_recomputed = 0;     // pages were found, but no state behind them: computed again
  int64_t prefill_tokens = 0;        // rows of prompts and of resumed sequences
  int64_t decode_tokens = 0;         // rows of decoding
  int64_t generated_tokens = 0;      // delivered
  speculate::Metrics speculation;    // of completed cycles, if drafts are on

  // Events.
  int64_t cycles = 0;
  int64_t retractions_to_host = 0;
  int64_t retractions_recomputed = 0;  // no room on the host: the tokens are computed again
  int64_t stalled_rows = 0;            // a decode row skipped a cycle for want of a page
  int64_t pages_evicted = 0;
  int64_t snapshots_taken = 0;
  int64_t snapshots_skipped = 0;  // no room
  int64_t forks = 0;

  // Waits, in nanoseconds, of admitted sequences: from submission, or retraction, to admission.
  int64_t queue_wait_sum = 0;
  int64_t queue_wait_max = 0;
  int64_t admissions = 0;
};

}  // namespace baton::sched
