#include "api/completion.h"

#include <algorithm>

#include "api/endpoints.h"
#include "api/grammar_fields.h"
#include "api/prompt_fields.h"

namespace baton::api {
namespace {

constexpr int64_t kUsualMaxTokens = 16;  // what OpenAI's API takes where nothing is said

CompletionRequest& completion(Request& out) { return static_cast<CompletionRequest&>(out); }

void read_max_tokens(FieldReader& in, Request& out) {
  if (const auto most = in.whole(0, in.limits().max_tokens)) out.sampling.max_tokens = *most;
}

void read_logprobs(FieldReader& in, Request& out) {
  // Some clients say false for "none".
  if (in.value().is_bool() && !in.value().get_bool()) return;
  if (const auto top = in.whole(0, in.limits().top_logprobs)) out.sampling.logprobs = static_cast<int32_t>(*top);
}

void read_prompt_logprobs(FieldReader& in, Request& out) {
  if (const auto top = in.whole(-1, in.limits().top_logprobs)) out.sampling.prompt_logprobs = static_cast<int32_t>(*top);
}

constexpr Field kFields[] = {
    {.name = "prompt",
     .type = "string or list",
     .what = "text, a list of token ids, or a list of such; 256 prompts at most. Special tokens in the text count as such",
     .required = true,
     .read = [](FieldReader& in, Request& out) { read_prompts(in, completion(out).prompts); }},
    {.name = "max_tokens",
     .type = "integer",
     .what = "16 if not given; 0 with `echo`, the prompt alone, is not there yet",
     .read = read_max_tokens},
    {.name = "echo",
     .type = "boolean",
     .what = "the text begins with the prompt, and `logprobs` with the prompt's",
     .read = [](FieldReader& in, Request& out) { in.into(completion(out).echo); }},
    {.name = "logprobs", .type = "integer, 0 to 20", .what = "of each token and of so many most likely ones", .read = read_logprobs},
    {.name = "prompt_logprobs",
     .type = "integer, -1 to 20",
     .what = "log-probabilities of the prompt's tokens; not in streams",
     .read = read_prompt_logprobs},
    {.name = "add_special_tokens",
     .type = "boolean",
     .what = "what the tokenizer puts around a text; true if not given",
     .read = [](FieldReader& in, Request& out) { in.into(completion(out).add_special_tokens); }},
    {.name = "response_format",
     .type = "object",
     .what = "`text`, `json_object`, `json_schema` or `structural_tag`",
     .read = read_response_format},
    refused("suffix", "the model does not fill in the middle", "\"\""),
    refused("prompt_embeds", "embeddings are not taken"),
    kNoThinkingTokenBudget,
    kNoThinkingBudget,
    kNoReasoningBudget,
};

}  // namespace

std::vector<std::span<const Field>> completion_groups() {
  return {kFields, openai_fields(), stream_fields(), sampling_fields(), grammar_fields()};
}

ApiResult<CompletionRequest> parse_completion(std::string_view text, const ParseLimits& limits) {
  auto body = Body::parse(text, limits);
  if (!body.ok()) return body.error();
  CompletionRequest r;
  Reading reading{limits, r.ignored_fields};
  read_fields(*body, completion_groups(), reading, r);
  if (!reading.error && !r.sampling.max_tokens) r.sampling.max_tokens = std::max(kUsualMaxTokens, r.sampling.min_tokens);
  check_whole(reading, r);
  const auto wrong = [&](std::string field, std::string_view what) {
    if (!reading.error) reading.error = ApiError::field(std::move(field), what);
  };
  if (r.sampling.max_tokens == 0 && !r.echo) wrong("max_tokens", "is 0, which is only of use with `echo`");
  check_choices(reading, r.prompts.size(), r.sampling.n, {.choices = "n", .prompts = "prompt"});
  if (r.stream.on && r.sampling.prompt_logprobs >= 0) wrong("prompt_logprobs", "cannot be streamed");
  if (reading.error) return *std::move(reading.error);
  if (r.echo && r.sampling.logprobs >= 0) r.sampling.prompt_logprobs = std::max(r.sampling.prompt_logprobs, r.sampling.logprobs);
  return r;
}

}  // namespace baton::api
