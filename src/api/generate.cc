#include "api/generate.h"

#include <algorithm>

#include "api/endpoints.h"
#include "api/json_text.h"
#include "api/openai_parts.h"
#include "api/prompt_fields.h"

namespace baton::api {
namespace {

constexpr int64_t kUsualMaxTokens = 128;  // SGLang's

// Values that belong together, and come in any order.
struct Draft : GenerateRequest {
  bool return_logprob = false;
  int64_t start = -1;
  int32_t top = 0;
};
Draft& draft(Request& out) { return static_cast<Draft&>(out); }

void read_max_new_tokens(FieldReader& in, Request& out) {
  if (const auto most = in.whole(1, in.limits().max_tokens)) out.sampling.max_tokens = *most;
}

constexpr Field kSampling[] = {
    {.name = "max_new_tokens", .type = "integer from 1", .what = "128 if not given", .read = read_max_new_tokens},
    {.name = "max_tokens",
     .type = "integer from 1",
     .what = "another name of `max_new_tokens`",
     .same_as = "max_new_tokens",
     .read = read_max_new_tokens},
    kNoThinkingTokenBudget,
    kNoThinkingBudget,
    kNoReasoningBudget,
};

void read_sampling_params(FieldReader& in, Request& out) {
  if (in.value().is_array()) return in.unsupported("is a list; one object counts for all prompts");
  read_fields(in, generate_sampling_groups(), out);
}

constexpr Field kFields[] = {
    {.name = "text",
     .type = "string or list",
     .what = "a prompt, or a list of prompts; 256 at most",
     .read = [](FieldReader& in, Request& out) { read_prompts(in, draft(out).prompts, &draft(out).list); }},
    {.name = "input_ids",
     .type = "list",
     .what = "a prompt as token ids, or a list of such, instead of `text`",
     .read =
         [](FieldReader& in, Request& out) {
           if (in.value().is_string()) return in.wrong("is a string; it must be a list of token ids");
           read_prompts(in, draft(out).prompts, &draft(out).list);
         }},
    {.name = "sampling_params", .type = "object", .what = "see [sampling](#sampling); one for all prompts", .read = read_sampling_params},
    {.name = "stream",
     .type = "boolean",
     .what = "the answer as server-sent events, each with all of the text so far",
     .read = [](FieldReader& in, Request& out) { in.into(out.stream.on); }},
    {.name = "return_logprob",
     .type = "boolean",
     .what = "log-probabilities of the tokens of the output",
     .read = [](FieldReader& in, Request& out) { in.into(draft(out).return_logprob); }},
    {.name = "logprob_start_len",
     .type = "integer from -1",
     .what = "with `return_logprob`: also of the prompt, from this token on; -1: not of the prompt",
     .range = {-1, 0x1p24},
     .read = [](FieldReader& in, Request& out) { in.into(draft(out).start); }},
    {.name = "top_logprobs_num",
     .type = "integer, 0 to 20",
     .what = "with `return_logprob`: also those of the most likely tokens",
     .read =
         [](FieldReader& in, Request& out) {
           if (const auto top = in.whole(0, in.limits().top_logprobs)) draft(out).top = static_cast<int32_t>(*top);
         }},
    {.name = "return_text_in_logprobs",
     .type = "boolean",
     .what = "the text of each of these tokens as well",
     .read = [](FieldReader& in, Request& out) { in.into(draft(out).text_in_logprobs); }},
    {.name = "rid",
     .type = "string",
     .what = "the id in `meta_info`",
     .read = [](FieldReader& in, Request& out) { in.into(draft(out).id); }},
    {.name = "model",
     .type = "string",
     .what = "a name that GET /v1/models lists; not given: the model that is served",
     .read = [](FieldReader& in, Request& out) { in.into(out.model); }},
    {.name = "priority",
     .type = "integer of 32 bits",
     .what = "which requests go first when not all can",
     .range = {-2147483648.0, 2147483647},
     .read = [](FieldReader& in, Request& out) { in.into(out.priority); }},
    {.name = "extra_key",
     .type = "string",
     .what = "SGLang's name of `cache_salt`",
     .read = [](FieldReader& in, Request& out) { in.into(out.cache_salt); }},
    without_effect("log_metrics", "metrics count every request"),
    refused("input_embeds", "embeddings are not taken"),
    refused("image_data", "this model reads text only"),
    refused("video_data", "this model reads text only"),
    refused("audio_data", "this model reads text only"),
    refused("modalities", "this model reads text only", "[]"),
    refused("token_ids_logprob", "log-probabilities of chosen tokens are not given; `top_logprobs_num` gives the most likely ones"),
    refused("return_hidden_states", "hidden states are not given out", "false"),
    refused("session_params", "nothing is kept open between requests; the cache finds what a prompt shares with earlier ones"),
    refused("lora_path", "there are no adapters"),
    refused("custom_logit_processor", "code of clients is not run"),
    refused("bootstrap_host", "the router places requests, not the client"),
    refused("bootstrap_port", "the router places requests, not the client"),
    refused("bootstrap_room", "the router places requests, not the client"),
};

void append_triples(std::string& out, std::span<const TokenLogprob> tokens, bool text) {
  out += '[';
  for (size_t i = 0; i < tokens.size(); ++i) {
    out += i > 0 ? ",[" : "[";
    append_number(out, shown_logprob(tokens[i].logprob));
    out += ',';
    append_int(out, tokens[i].id);
    out += ',';
    if (text)
      append_string(out, tokens[i].bytes);
    else
      out += "null";
    out += ']';
  }
  out += ']';
}

void append_logprob_lists(std::string& out, std::string_view kind, std::span<const TokenLogprobs> tokens, bool text) {
  out += ",\"";
  out += kind;
  out += R"(_token_logprobs":[)";
  for (size_t i = 0; i < tokens.size(); ++i) {
    out += i > 0 ? ",[" : "[";
    if (tokens[i].known)
      append_number(out, shown_logprob(tokens[i].token.logprob));
    else
      out += "null";
    out += ',';
    append_int(out, tokens[i].token.id);
    out += ',';
    if (text)
      append_string(out, tokens[i].token.bytes);
    else
      out += "null";
    out += ']';
  }
  out += R"(],")";
  out += kind;
  out += R"(_top_logprobs":[)";
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0) out += ',';
    if (tokens[i].known)
      append_triples(out, tokens[i].top, text);
    else
      out += "null";
  }
  out += ']';
}

void append_native_finish(std::string& out, const Finish& finish, int64_t tokens) {
  out += R"({"type":")";
  out += finish.reason == text::FinishReason::kToolCalls ? "stop" : name_of(finish.reason);
  out += '"';
  if (finish.reason == text::FinishReason::kLength) {
    out += R"(,"length":)";
    append_int(out, tokens);
  } else if (const auto* text = std::get_if<std::string>(&finish.matched)) {
    out += R"(,"matched":)";
    append_string(out, *text);
  } else if (const auto* id = std::get_if<int32_t>(&finish.matched)) {
    out += R"(,"matched":)";
    append_int(out, *id);
  }
  out += '}';
}

}  // namespace

std::vector<std::span<const Field>> generate_sampling_groups() { return {kSampling, sampling_fields(), grammar_fields()}; }
std::vector<std::span<const Field>> generate_groups() { return {kFields}; }

ApiResult<GenerateRequest> parse_generate(std::string_view text, const ParseLimits& limits) {
  auto body = Body::parse(text, limits);
  if (!body.ok()) return body.error();
  Draft r;
  Reading reading{limits, r.ignored_fields};
  read_fields(*body, generate_groups(), reading, r);
  if (!reading.error && r.prompts.empty()) reading.error = ApiError::field("text", "is missing; give it, or `input_ids`");
  if (!r.sampling.max_tokens) r.sampling.max_tokens = std::max(kUsualMaxTokens, r.sampling.min_tokens);
  check_whole(reading, r);
  const bool is_text = r.prompts.empty() || r.prompts.front().is_text();
  check_choices(reading, r.prompts.size(), r.sampling.n, {.choices = "sampling_params.n", .prompts = is_text ? "text" : "input_ids"});
  if (reading.error) return *std::move(reading.error);
  if (r.return_logprob) {
    r.sampling.logprobs = r.top;
    if (r.start >= 0) r.sampling.prompt_logprobs = r.top;
    r.logprob_start = std::max<int64_t>(r.start, 0);
  }
  return GenerateRequest(std::move(r));
}

void append_generated(std::string& out, const Generated& c) {
  out += '{';
  if (c.index) {
    out += R"("index":)";
    append_int(out, *c.index);
    out += ',';
  }
  out += R"("text":)";
  append_string(out, c.text);
  out += R"(,"output_ids":[)";
  for (size_t i = 0; i < c.ids.size(); ++i) {
    if (i > 0) out += ',';
    append_int(out, c.ids[i]);
  }
  out += R"(],"meta_info":{"id":)";
  append_string(out, c.id);
  out += R"(,"finish_reason":)";
  if (c.finish)
    append_native_finish(out, *c.finish, c.usage.completion);
  else
    out += "null";
  out += R"(,"prompt_tokens":)";
  append_int(out, c.usage.prompt);
  out += R"(,"completion_tokens":)";
  append_int(out, c.usage.completion);
  out += R"(,"cached_tokens":)";
  append_int(out, c.usage.cached);
  out += R"(,"reasoning_tokens":)";
  append_int(out, c.usage.reasoning);
  if (c.usage.drafted && c.usage.accepted) {
    out += R"(,"spec_num_proposed_drafts":)";
    append_int(out, *c.usage.drafted);
    out += R"(,"spec_num_correct_drafts":)";
    append_int(out, *c.usage.accepted);
  }
  append_timing(out, c.usage);
  if (c.logprobs) {
    append_logprob_lists(out, "input", c.input_logprobs, c.text_in_logprobs);
    append_logprob_lists(out, "output", c.output_logprobs, c.text_in_logprobs);
  }
  out += R"(,"e2e_latency":)";
  append_number(out, c.seconds);
  out += "}}";
}

void append_generated_event(std::string& out, const Generated& choice) {
  out += "data: ";
  append_generated(out, choice);
  out += "\n\n";
}

void append_generate_done(std::string& out) { out += "data: [DONE]\n\n"; }

}  // namespace baton::api
