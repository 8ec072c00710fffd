// What requests of all endpoints have in common: how to sample, when to stop, how to stream.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/grammar.h"

namespace baton::api {

// Checked: every number is finite and in the range that `docs/api.md` gives. What is not set is the model's or the server's to choose.
struct Sampling {
  std::optional<float> temperature{}, top_p{}, min_p{}, repetition_penalty{};
  std::optional<int32_t> top_k{};  // 0: off
  float frequency_penalty = 0, presence_penalty = 0;
  std::optional<uint64_t> seed{};
  std::vector<std::pair<int32_t, float>> logit_bias{};  // distinct tokens, ascending

  std::optional<int64_t> max_tokens{};
  int64_t min_tokens = 0;
  std::vector<std::string> stop{};  // none is empty
  std::vector<int32_t> stop_token_ids{};
  bool ignore_eos = false;
  bool include_stop_str_in_output = false;
  bool skip_special_tokens = true;

  int32_t n = 1;
  int32_t logprobs = -1;         // -1: none; k: of each token and of the k most likely
  int32_t prompt_logprobs = -1;  // the same for the tokens of the prompt
};

// A prompt that is no conversation.
struct Prompt {
  std::string text{};
  std::vector<int32_t> ids{};  // instead of text
  bool is_text() const { return ids.empty(); }
};

struct StreamOptions {
  bool on = false;
  bool include_usage = false;
  bool continuous_usage = false;  // in every chunk
};

struct Request {
  std::string model{};
  Sampling sampling{};
  StreamOptions stream{};
  std::optional<text::GrammarSpec> grammar{};  // that the content keeps to
  std::string grammar_field{};                 // where it stood
  std::optional<int32_t> thinking_token_budget{};
  int32_t priority = 0;  // as the client said it; what is higher is the server's to say
  std::string cache_salt{};
  std::string user{};
  bool cache_prompt = true;                   // false: neither reads nor fills the prefix cache
  std::vector<std::string> ignored_fields{};  // in the order of the body, such as "stream_options.foo"; after many "..."
};

}  // namespace baton::api
