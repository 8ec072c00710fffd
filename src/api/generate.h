// POST /generate: the native endpoint, in the shape of SGLang's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/answer.h"
#include "api/error.h"
#include "api/limits.h"
#include "api/request.h"

namespace baton::api {

struct GenerateRequest : Request {
  std::vector<Prompt> prompts{};  // at least one; choices are numbered prompt by prompt, sampling.n for each
  bool list = false;              // prompts came as a list: so does the answer, also for one
  std::string id{};               // `rid`, for meta_info
  // With sampling.prompt_logprobs: the first token of the prompt that they are wanted for.
  int64_t logprob_start = 0;
  bool text_in_logprobs = false;

  bool many() const { return list || sampling.n > 1; }
};

// sampling.max_tokens is always set, 128 if it is not given.
ApiResult<GenerateRequest> parse_generate(std::string_view body, const ParseLimits& limits);

// A choice, as far as it is: in a stream every event has all of it.
struct Generated {
  std::string_view id{};
  std::string_view text{};
  std::span<const int32_t> ids{};
  std::optional<Finish> finish{};
  Usage usage{};
  double seconds = 0;              // since the request came
  std::optional<int32_t> index{};  // of the choice, where a stream has several
  bool logprobs = false;
  bool text_in_logprobs = false;
  std::span<const TokenLogprobs> output_logprobs{};
  std::span<const TokenLogprobs> input_logprobs{};
};

// The object of a choice; a whole answer is one, or a list of them.
void append_generated(std::string& out, const Generated& choice);
// An event of a stream, whose last one is append_generate_done.
void append_generated_event(std::string& out, const Generated& choice);
void append_generate_done(std::string& out);

}  // namespace baton::api
