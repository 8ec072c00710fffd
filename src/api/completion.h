// POST /v1/completions: the request.
#pragma once

#include <string_view>
#include <vector>

#include "api/error.h"
#include "api/limits.h"
#include "api/request.h"

namespace baton::api {

struct CompletionRequest : Request {
  std::vector<Prompt> prompts{};  // at least one; choices are numbered prompt by prompt, `n` for each
  bool echo = false;              // the prompt is the beginning of the text; with logprobs, sampling.prompt_logprobs is set as well
  bool add_special_tokens = true;
};

// sampling.max_tokens is always set, 16 if it is not given; 0 only with echo.
ApiResult<CompletionRequest> parse_completion(std::string_view body, const ParseLimits& limits);

}  // namespace baton::api
