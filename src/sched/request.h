// What the scheduler is asked for, and what it tells: requests, refusals, events.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

namespace baton::sched {

using RequestId = uint64_t;  // chosen by the caller, never used twice
using Time = int64_t;        // nanoseconds of a clock that never goes back; only differences mean anything

inline constexpr Time kNever = std::numeric_limits<Time>::max();
inline constexpr int64_t kUnlimited = -1;
inline constexpr int32_t kMostPromptLogprobs = 32;  // a cycle has as many for each row of a prompt

// How tokens are drawn; see ops/head.h for what each number does and in which order.
struct Sampling {
  float temperature = 0;
  float top_p = 1;
  int32_t top_k = 0;
  float min_p = 0;
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  std::vector<std::pair<int32_t, float>> logit_bias;  // distinct tokens
  uint64_t seed = 0;                                  // of choice 0; the others' are derived from it
  int32_t logprobs = -1;                              // -1: none; k: of the drawn token and of the k most likely
  int32_t prompt_logprobs = -1;                       // likewise, of the prompt's tokens from the second on; at most kMostPromptLogprobs

  bool penalises() const { return repetition_penalty != 1 || frequency_penalty != 0 || presence_penalty != 0; }
};

struct RequestSpec {
  std::vector<int32_t> prompt;
  Sampling sampling;
  int64_t max_tokens = kUnlimited;  // kUnlimited: until a stop token or the end of the context
  int64_t min_tokens = 0;           // stop tokens are not drawn before
  std::vector<int32_t> stop_tokens;
  int32_t choices = 1;       // independent continuations of one prompt, which is computed once
  int32_t priority = 0;      // larger goes first; equal ones in order of arrival
  uint64_t salt = 0;         // cached prefixes are shared among equal salts alone
  Time deadline = kNever;    // for everything, queueing included
  bool cache_prompt = true;  // false: neither reads nor fills the prefix cache
  // Computes the prompt, draws nothing, and keeps its memory until let_go() or cancel(): somebody else goes on from it.
  bool prompt_only = false;
};

enum class FinishReason : uint8_t {
  kNone,       // goes on
  kStop,       // a stop token was drawn, or the form that the choice is held to is complete
  kLength,     // max_tokens, or the end of the context
  kCancelled,  // by the caller
  kDeadline,
  kNotFinite,       // the logits are not numbers
  kNothingAllowed,  // every token is banned
  kConstraint,      // what holds the choice to a form has failed
  kFailed           // the device failed
};

const char* finish_reason_name(FinishReason reason);

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;     // of the prompt, whose cache and state were found; < prompt_tokens
  int64_t generated_tokens = 0;  // of this choice; a stop token counts
  Time waited = 0;               // of this choice, from submission to its first admission
  int64_t drafted_tokens = 0;    // for this choice, verified
  int64_t accepted_tokens = 0;   // of generated_tokens, what drafts gave: all beyond one a cycle, so that the others count the cycles
};

// One token, an end, or both. A choice's events come in order; exactly one of them has a reason.
struct Event {
  RequestId request = 0;
  int32_t choice = 0;
  int32_t token = -1;  // -1: none
  int32_t draw = -1;   // index into what the cycle drew (Drawn::tokens), of the token or the end; -1: of none
  int32_t score =
      -1;  // index into the cycle's scores: the log-probabilities of some prompt tokens are there, and nothing else has happened
  int64_t computed = -1;  // of a request that is prompt_only: positions before this one are in its pages; nothing else has happened
  FinishReason reason = FinishReason::kNone;
  bool last = false;  // the request is over: all its choices have ended
  Usage usage;        // so far
};

}  // namespace baton::sched
