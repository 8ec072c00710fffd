// A sequence: one choice of a request on its way through the scheduler. Internal to the room.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/prefix_tree.h"
#include "sched/request.h"
#include "speculate/draft_length.h"

namespace baton::sched {

//             admit                last chunk                stop, limit, cancel, deadline
//   kWaiting ------> kPrefill -----------------> kDecode -----------------------------------> kDraining --> gone
//      ^ \             |  \ (from any state)        |                                           ^
//      |  `------------|---`------------------------|-------------------------------------------'
//      '--- retract ---'----------------------------'
// Choices behind the first are admitted with it as kAwaitFork and become kDecode when the prompt is computed. What is prompt_only becomes
// kComputed then, until it is let go; what lands with its prompt computed starts as kDecode.
enum class State : uint8_t { kWaiting, kPrefill, kAwaitFork, kComputed, kDecode, kDraining };

struct Request;

// A retracted sequence's memory.
struct HostCopy {
  int32_t slot = -1;
  std::vector<int32_t> pages;  // of positions 0 ... computed - 1
  int64_t computed = 0;        // -1: all but the last of its tokens, once these are known
  bool exists() const { return slot >= 0; }
};

struct Sequence {
  Request* request = nullptr;
  int32_t choice = 0;
  State state = State::kWaiting;
  Time waiting_since = 0;
  Time waited = 0;  // until it was admitted first
  bool has_run = false;
  bool landed = false;      // its first draw, from the hidden row in its slot, is not planned yet
  bool reset_ring = false;  // its slot came with the replay ring of another

  std::vector<int32_t> tokens;  // prompt and what was drawn, as far as the host has seen it; empty until it is admitted first
  int64_t drawn = 0;            // tokens planned, at least; those in flight are not in `tokens` yet
  int64_t computed = 0;         // rows planned: the caches hold positions 0 ... computed - 1, at least, once launched cycles are done
  int64_t drafts = 0;           // in flight: so many rows and tokens may come to be more than that
  int64_t completed_rows = 0;   // rows of completed cycles
  int64_t max_drawn = 0;        // 1 ... context - prompt

  int32_t slot = -1;
  std::vector<int32_t> pages;  // of positions 64 i ... 64 i + 63; the first tree_pages belong to the tree, the others to the sequence
  int32_t tree_pages = 0;
  cache::Node node = cache::kRoot;  // the last of the tree's pages, leased
  int32_t branch_pages = 0;         // others' pages went on to here, without a state: leave one behind
  int32_t snapshot_pages = 0;       // where the last snapshot of this path was taken that stays there
  int32_t moving_pages = 0;         // behind that one, where the snapshot was taken that moves along with what is generated; 0: none yet
  int32_t moving_snapshot = -1;     // which one that is, unless it has gone meanwhile
  HostCopy host;
  int64_t last_cycle = 0;  // the last launched cycle that touches the sequence's memory

  int64_t cached_tokens = 0;
  int64_t drafted_tokens = 0;   // verified for it
  int64_t accepted_tokens = 0;  // tokens of its text beyond one of each block
  int64_t scored = 0;           // rows of the prompt whose scores are planned, if they are asked for
  speculate::DraftLength draft_length;

  // Prompt rows that have to run for their scores; a choice behind the first leaves them to it.
  int64_t rows_to_score() const;

  std::span<const int32_t> known() const;  // prompt and what was drawn, also before it is admitted
  Usage usage(int64_t generated) const;
};

struct Request {
  RequestId id = 0;
  RequestSpec spec;
  uint64_t arrival = 0;
  uint64_t salt = 0;
  std::vector<std::unique_ptr<Sequence>> choices;
  int32_t unfinished = 0;    // choices without their last event
  int32_t present = 0;       // choices that are not gone
  bool together = true;      // all choices are admitted at once, and the others fork from the first
  bool ended_early = false;  // some choice was cancelled, expired or failed
  FinishReason early_reason = FinishReason::kNone;

  int64_t prompt_tokens() const { return static_cast<int64_t>(spec.prompt.size()); }
};

inline std::span<const int32_t> Sequence::known() const { return tokens.empty() ? request->spec.prompt : tokens; }
inline Usage Sequence::usage(int64_t generated) const {
  return {.prompt_tokens = std::ssize(request->spec.prompt),
          .cached_tokens = cached_tokens,
          .generated_tokens = generated,
          .waited = waited,
          .drafted_tokens = drafted_tokens,
          .accepted_tokens = accepted_tokens};
}

inline int64_t Sequence::rows_to_score() const {
  return request->spec.sampling.prompt_logprobs >= 0 && choice == 0 ? request->prompt_tokens() - 1 : 0;
}

// Who is served first, and who is retracted last.
inline bool goes_before(const Sequence& a, const Sequence& b) {
  const Request& x = *a.request;
  const Request& y = *b.request;
  if (x.spec.priority != y.spec.priority) return x.spec.priority > y.spec.priority;
  if (x.arrival != y.arrival) return x.arrival < y.arrival;
  return a.choice < b.choice;
}

}  // namespace baton::sched
