#include "api/chat.h"

#include <algorithm>

#include "api/conversation.h"
#include "api/endpoints.h"
#include "api/grammar_fields.h"

namespace baton::api {
namespace {

using text::ChatValue;

void read_messages(FieldReader& in, Request& out) {
  chat(out).prompt.messages = template_value(in);
  if (!in.failed()) check_messages(in.reading(), chat(out).prompt.messages);
}

void read_template_options(FieldReader& in, Request& out) {
  constexpr size_t kMostOptions = 64;
  const auto* members = in.object();
  if (members == nullptr) return;
  if (members->size() > kMostOptions) return in.wrong(fmt::format("has {} variables; {} are the most", members->size(), kMostOptions));
  const ChatValue exact = template_value(in);
  if (in.failed()) return;
  auto& options = chat(out).prompt.options;
  for (const auto& [name, value] : exact.as_dict().entries) {
    std::erase_if(options, [&, n = name.view()](const auto& o) { return o.first == n; });
    options.emplace_back(name.view(), value);
  }
}

// As the API of the model's makers has it: {"type": "enabled"}; or in one word.
void read_thinking(FieldReader& in, Request& out) {
  const boost::json::value* type = in.value().is_object() ? in.value().get_object().if_contains("type") : &in.value();
  const std::string_view word = type != nullptr && type->is_string() ? std::string_view(type->get_string()) : std::string_view();
  const bool on = word == "enabled" || word == "on", off = word == "disabled" || word == "off";
  if (!on && !off) return in.wrong("must be {\"type\": \"enabled\"} or {\"type\": \"disabled\"}");
  set_option(chat(out), "enable_thinking", ChatValue::boolean(on));
}

// As some gateways have it.
void read_reasoning(FieldReader& in, Request& out) {
  constexpr Field kReasoning[] = {
      {.name = "effort",
       .type = "string",
       .what = "as `reasoning_effort`",
       .read = [](FieldReader& i, Request& o) { read_reasoning_effort(i, chat(o)); }},
      {.name = "enabled",
       .type = "boolean",
       .what = "the template's variable `enable_thinking`",
       .read =
           [](FieldReader& i, Request& o) {
             if (const auto on = i.flag()) set_option(chat(o), "enable_thinking", ChatValue::boolean(*on));
           }},
      {.name = "max_tokens",
       .type = "integer",
       .what = "as `thinking_token_budget`",
       .range = {0, 0x1p24},
       .read = [](FieldReader& i, Request& o) { i.into(o.thinking_token_budget); }},
      refused("exclude", "reasoning is always shown, in its own field", "false"),
      without_effect("summary", "reasoning is shown whole"),
  };
  const std::span<const Field> groups[] = {kReasoning};
  read_fields(in, groups, out);
}

void read_max_tokens(FieldReader& in, Request& out) {
  // max_completion_tokens wins, wherever it stands.
  if (const auto most = in.whole(1, in.limits().max_tokens); most && !out.sampling.max_tokens) out.sampling.max_tokens = *most;
}

void read_max_completion_tokens(FieldReader& in, Request& out) {
  if (const auto most = in.whole(1, in.limits().max_tokens)) out.sampling.max_tokens = *most;
}

void read_logprobs(FieldReader& in, Request& out) {
  if (const auto on = in.flag(); on && *on) out.sampling.logprobs = std::max(out.sampling.logprobs, 0);
}

void read_top_logprobs(FieldReader& in, Request& out) {
  if (const auto top = in.whole(0, in.limits().top_logprobs)) chat(out).top_logprobs = static_cast<int32_t>(*top);
}

void read_prompt_logprobs(FieldReader& in, Request& out) {
  if (const auto top = in.whole(-1, in.limits().top_logprobs)) out.sampling.prompt_logprobs = static_cast<int32_t>(*top);
}

constexpr Field kFields[] = {
    {.name = "messages", .type = "list", .what = "the conversation; see [messages](#messages)", .required = true, .read = read_messages},
    {.name = "max_completion_tokens",
     .type = "integer from 1",
     .what = "tokens of the answer, reasoning included",
     .read = read_max_completion_tokens},
    {.name = "max_tokens",
     .type = "integer from 1",
     .what = "the earlier name of `max_completion_tokens`, which wins",
     .read = read_max_tokens},
    {.name = "logprobs", .type = "boolean", .what = "log-probabilities of the tokens of the answer", .read = read_logprobs},
    {.name = "top_logprobs",
     .type = "integer, 0 to 20",
     .what = "with `logprobs`: also those of the most likely tokens",
     .read = read_top_logprobs},
    {.name = "prompt_logprobs",
     .type = "integer, -1 to 20",
     .what = "log-probabilities of the prompt's tokens; not in streams",
     .read = read_prompt_logprobs},
    {.name = "tools",
     .type = "list",
     .what = "functions that may be called; 512 at most",
     .read = [](FieldReader& in, Request& out) { read_tools(in, chat(out)); }},
    {.name = "tool_choice",
     .type = "string or object",
     .what = "`auto`, `none` (the model is not told of the tools), `required`, or one function by name",
     .read = [](FieldReader& in, Request& out) { read_tool_choice(in, chat(out)); }},
    {.name = "parallel_tool_calls",
     .type = "boolean",
     .what = "false: one call at most",
     .read = [](FieldReader& in, Request& out) { in.into(chat(out).tools.parallel); }},
    {.name = "response_format",
     .type = "object",
     .what = "`text`, `json_object`, `json_schema` or `structural_tag`",
     .read = read_response_format},
    {.name = "reasoning_effort",
     .type = "string",
     .what = "`none`, `minimal` and `low`, `medium` and `high`, `xhigh` and `max`: the model's levels low, high and max",
     .read = [](FieldReader& in, Request& out) { read_reasoning_effort(in, chat(out)); }},
    {.name = "reasoning",
     .type = "object",
     .what = "`effort`; `enabled`, as `thinking`; `max_tokens`, as `thinking_token_budget`",
     .read = read_reasoning},
    {.name = "thinking",
     .type = "object or string",
     .what = "`{\"type\": \"enabled\"}` or `disabled`: the template's variable `enable_thinking`",
     .read = read_thinking},
    {.name = "chat_template_kwargs", .type = "object", .what = "variables of the chat template; 64 at most", .read = read_template_options},
    {.name = "add_generation_prompt",
     .type = "boolean",
     .what = "the prompt ends where the assistant begins; true unless `continue_final_message` is set",
     .read = [](FieldReader& in, Request& out) { in.into(chat(out).prompt.add_generation_prompt); }},
    {.name = "continue_final_message",
     .type = "boolean",
     .what = "the answer continues the last message",
     .read = [](FieldReader& in, Request& out) { in.into(chat(out).prompt.continue_final_message); }},
    without_effect("verbosity", "the model knows no such setting"),
    refused("include_reasoning", "reasoning is always shown, in its own field", "true"),
    refused("separate_reasoning", "reasoning is always shown in its own field", "true"),
    refused("stream_reasoning", "reasoning is streamed as it comes", "true"),
    refused("functions", "is out of use; `tools` is its successor", "[]"),
    refused("function_call", "is out of use; `tool_choice` is its successor"),
    refused("modalities", "the model writes text only", "[\"text\"]"),
    refused("audio", "the model writes text only"),
    refused("prediction", "predicted output is not used"),
    refused("web_search_options", "the server searches nothing"),
    refused("chat_template", "the template is the server's"),
    refused("documents", "the model's template knows no documents; put them into a message", "[]"),
    refused("echo", "the prompt is not repeated", "false"),
    refused("add_special_tokens", "the chat template writes all special tokens", "false"),
    refused("input_ids", "the chat template makes the prompt; /generate and /v1/completions take token ids"),
    refused("task", "the model knows no such tasks"),
    refused("media_io_kwargs", "the model reads text only"),
    refused("mm_processor_kwargs", "the model reads text only"),
};

}  // namespace

std::vector<std::span<const Field>> chat_groups() {
  return {kFields, openai_fields(), stream_fields(), sampling_fields(), grammar_fields()};
}

ApiResult<ChatRequest> parse_chat(std::string_view text, const ParseLimits& limits) {
  auto body = Body::parse(text, limits);
  if (!body.ok()) return body.error();
  ChatRequest r;
  Reading reading{limits, r.ignored_fields};
  read_fields(*body, chat_groups(), reading, r);
  check_conversation(reading, r);
  if (!reading.error && r.top_logprobs >= 0) {
    if (r.sampling.logprobs < 0 && r.top_logprobs > 0) reading.error = ApiError::field("top_logprobs", "needs `logprobs` to be true");
    if (r.sampling.logprobs >= 0) r.sampling.logprobs = r.top_logprobs;
  }
  if (!reading.error && r.stream.on && r.sampling.prompt_logprobs >= 0)
    reading.error = ApiError::field("prompt_logprobs", "cannot be streamed");
  if (reading.error) return *std::move(reading.error);
  return r;
}

}  // namespace baton::api
