// Sampling from logits. One draw per row, keyed by (seed, position): the result depends on nothing else in the batch.
#pragma once

#include <cstdint>

#include "tensor/view.h"

namespace baton::ops {

// A token that a sequence has met: in its prompt, or among the tokens generated for it.
struct SeenToken {
  int32_t token;
  int32_t prompt;     // 1: in the prompt
  int32_t generated;  // how often it was generated
};

struct LogitBias {
  int32_t token;
  float bias;
};

// How a row's token is drawn from its logits l, in this order:
//   1. l -= inf for `banned` tokens and those that `allowed` leaves out; l += bias
//   2. seen tokens: l = l > 0 ? l / repetition : l * repetition;  generated ones: l -= frequency * count + presence
//   3. temperature; then of the softmax: the top_k most likely, of their renormalised mass the smallest set that reaches top_p, and of the
//      kept ones those with at least min_p times the largest probability. Ties at an edge are kept together.
//   4. Gumbel-max over what is left.
// Arrays lie where the backend reads them.
struct SamplingRow {
  float temperature = 0;  // 0: the largest logit after steps 1 and 2, ties to the lower id; step 3 is skipped
  float top_p = 1;        // 1: off
  uint64_t seed = 0;
  int32_t position = 0;  // position that the sampled token will take
  int32_t top_k = 0;     // 0: off
  float min_p = 0;       // 0: off
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  const SeenToken* seen = nullptr;  // [seen_count], distinct tokens
  int32_t seen_count = 0;
  const LogitBias* bias = nullptr;  // [bias_count], distinct tokens
  int32_t bias_count = 0;
  const int32_t* banned = nullptr;  // [banned_count]
  int32_t banned_count = 0;
  const uint32_t* allowed = nullptr;  // bit t % 32 of word t / 32 allows token t; nullptr: all
  int32_t logprobs = -1;              // -1: none; k >= 0: of the drawn token and of the k most likely ones
};

struct TokenLogprob {
  int32_t token;
  float logprob;
};

inline constexpr int32_t kNotFinite = -1;       // a logit is not a number: nothing can be drawn from such a row
inline constexpr int32_t kNothingAllowed = -2;  // every token is banned, or left out by `allowed`

// Gumbel-max: argmax over the kept columns of logit / temperature + gumbel(seed, position, column), an exact draw from the softmax.
// Log-probabilities are those of the model: log softmax of the logits as they came in, before steps 1 to 3.
struct SampleParams {
  ConstMatrixView logits{};           // [m, vocabulary] kF32
  const SamplingRow* rows = nullptr;  // [m]
  int32_t* ids = nullptr;             // [m] out; a token, kNotFinite or kNothingAllowed
  float* logprobs = nullptr;          // [m] out, of the drawn token where the row asks; may be null if no row does
  TokenLogprob* top = nullptr;        // [m, top_stride] out, most likely first, ties to the lower id; likewise
  int32_t top_stride = 0;             // >= the largest `logprobs` of a row
  float* probabilities = nullptr;  // [m, vocabulary] out: of rows with a temperature what they are drawn from, behind step 3; may be null
};

}  // namespace baton::ops
