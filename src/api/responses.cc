#include "api/responses.h"

#include <boost/json/serialize.hpp>

#include "api/conversation.h"
#include "api/endpoints.h"
#include "api/grammar_fields.h"
#include "api/json_text.h"
#include "api/message_blocks.h"
#include "api/response_items.h"

namespace baton::api {
namespace {

namespace json = boost::json;
using text::ChatValue;
namespace jinja = text::jinja;

// Texts of what the answer repeats, in one line each as events need it, and the instructions, until all fields are read.
struct Draft : ResponsesRequest {
  std::optional<std::string> instructions{};
  std::string tools_text = "[]", choice_text = "\"auto\"", metadata_text = "{}", text_text = R"({"format":{"type":"text"}})",
              reasoning_text = "{}";
};
Draft& draft(Request& out) { return static_cast<Draft&>(out); }

void read_input(FieldReader& in, Request& out) {
  const ChatValue input = template_value(in);
  if (!in.failed()) chat(out).prompt.messages = messages_of_items(in.reading(), input);
}

void read_tools_of_responses(FieldReader& in, Request& out) {
  read_flat_tools(in, chat(out), "parameters", [](FieldReader& tool, const json::object& members) {
    const auto* type = members.if_contains("type");
    if (type == nullptr || *type != "function")
      return tool.member("type", type != nullptr ? *type : tool.value())
          .unsupported("must be 'function'; the server has no tools of its own");
  });
  if (!in.failed()) draft(out).tools_text = json::serialize(in.value());
}

void read_text_config(FieldReader& in, Request& out) {
  constexpr Field kText[] = {
      {.name = "format", .type = "object", .what = "as `response_format`, with the schema beside the type", .read = read_response_format},
      without_effect("verbosity", "the model knows no such setting"),
  };
  const std::span<const Field> groups[] = {kText};
  read_fields(in, groups, out);
  draft(out).text_text = json::serialize(in.value());
}

void read_reasoning(FieldReader& in, Request& out) {
  constexpr Field kReasoning[] = {
      {.name = "effort",
       .type = "string",
       .what = "as `reasoning_effort`",
       .read = [](FieldReader& i, Request& o) { read_reasoning_effort(i, chat(o)); }},
      without_effect("summary", "reasoning is shown whole"),
      without_effect("generate_summary", "reasoning is shown whole"),
  };
  const std::span<const Field> groups[] = {kReasoning};
  read_fields(in, groups, out);
  draft(out).reasoning_text = json::serialize(in.value());
}

void read_include(FieldReader& in, Request&) {
  constexpr size_t kMost = 16;
  const json::array* items = in.array(kMost);
  if (items == nullptr) return;
  for (size_t i = 0; i < items->size(); ++i)
    // Reasoning is shown in clear in any case.
    if ((*items)[i] != "reasoning.encrypted_content") return in.item(i, (*items)[i]).unsupported("cannot be included");
}

constexpr Field kFields[] = {
    {.name = "input",
     .type = "string or list",
     .what = "text, or items: messages, function calls, their outputs, reasoning",
     .required = true,
     .read = read_input},
    {.name = "instructions",
     .type = "string",
     .what = "a system message before the input",
     .read =
         [](FieldReader& in, Request& out) {
           if (const auto text = in.text(in.limits().body_bytes)) draft(out).instructions = std::string(*text);
         }},
    {.name = "max_output_tokens",
     .type = "integer",
     .what = "tokens of the answer, reasoning included",
     .range = {1, 0x1p24},
     .read = [](FieldReader& in, Request& out) { in.into(out.sampling.max_tokens); }},
    {.name = "tools", .type = "list", .what = "functions that may be called; 512 at most", .read = read_tools_of_responses},
    {.name = "tool_choice",
     .type = "string or object",
     .what = "`auto`, `none`, `required`, or `{\"type\": \"function\", \"name\": ...}`",
     .read =
         [](FieldReader& in, Request& out) {
           read_tool_choice(in, chat(out));
           draft(out).choice_text = json::serialize(in.value());
         }},
    {.name = "parallel_tool_calls",
     .type = "boolean",
     .what = "false: one call at most",
     .read = [](FieldReader& in, Request& out) { in.into(chat(out).tools.parallel); }},
    {.name = "text", .type = "object", .what = "`format`: `text`, `json_object` or `json_schema`", .read = read_text_config},
    {.name = "reasoning", .type = "object", .what = "`effort`: as `reasoning_effort` of chat completions", .read = read_reasoning},
    {.name = "include",
     .type = "list",
     .what = "`reasoning.encrypted_content`, which needs none of it: reasoning is shown in clear",
     .read = read_include},
    {.name = "metadata",
     .type = "object",
     .what = "repeated in the answer",
     .read =
         [](FieldReader& in, Request& out) {
           constexpr size_t kMostBytes = 16384;
           if (in.object() == nullptr) return;
           if (in.raw().size() > kMostBytes) return in.wrong(fmt::format("has {} bytes; {} are the most", in.raw().size(), kMostBytes));
           draft(out).metadata_text = json::serialize(in.value());
         }},
    {.name = "stream",
     .type = "boolean",
     .what = "the answer as server-sent events",
     .read = [](FieldReader& in, Request& out) { in.into(out.stream.on); }},
    without_effect("stream_options", "chunks are not padded, and the last event has the usage"),
    without_effect("max_tool_calls", "the server calls no tools"),
    refused("n", "this API has one answer to a request", "1"),
    refused("top_logprobs", "log-probabilities are given by chat completions", "0"),
    refused("previous_response_id", "answers are not stored; send the conversation as `input`"),
    refused("conversation", "conversations are not stored; send them as `input`"),
    refused("prompt", "prompts are not stored; send `input`"),
    refused("background", "answers are not stored, so none can be fetched later", "false"),
    refused("truncation", "prompts are never shortened silently", "\"disabled\""),
    refused("context_management", "conversations are not edited", "[]"),
    refused("moderation", "nothing is moderated"),
};

void append_member(std::string& out, std::string_view name, std::string_view value) {
  if (!out.empty()) out += ',';
  out += '"';
  out += name;
  out += "\":";
  out += value;
}

std::string number_or(std::optional<float> value, std::string_view otherwise) {
  if (!value) return std::string(otherwise);
  std::string text;
  append_number(text, *value);
  return text;
}

std::string echo_of(const Draft& r) {
  std::string out, instructions = "null";
  if (r.instructions) {
    instructions.clear();
    append_string(instructions, *r.instructions);
  }
  append_member(out, "instructions", instructions);
  append_member(out, "max_output_tokens", r.sampling.max_tokens ? std::to_string(*r.sampling.max_tokens) : "null");
  append_member(out, "metadata", r.metadata_text);
  append_member(out, "parallel_tool_calls", r.tools.parallel ? "true" : "false");
  append_member(out, "previous_response_id", "null");
  append_member(out, "reasoning", r.reasoning_text);
  append_member(out, "store", "false");
  append_member(out, "temperature", number_or(r.sampling.temperature, "null"));
  append_member(out, "text", r.text_text);
  append_member(out, "tool_choice", r.choice_text);
  append_member(out, "tools", r.tools_text);
  append_member(out, "top_p", number_or(r.sampling.top_p, "null"));
  append_member(out, "truncation", "\"disabled\"");
  return out;
}

}  // namespace

std::vector<std::span<const Field>> responses_groups() { return {kFields, openai_fields(), sampling_fields(), grammar_fields()}; }

ApiResult<ResponsesRequest> parse_responses(std::string_view text, const ParseLimits& limits) {
  auto body = Body::parse(text, limits);
  if (!body.ok()) return body.error();
  Draft r;
  Reading reading{limits, r.ignored_fields};
  read_fields(*body, responses_groups(), reading, r);
  if (reading.error) return *std::move(reading.error);
  if (r.instructions) {
    std::vector<ChatValue> all = {object_of({{"role", ChatValue::text("system")}, {"content", ChatValue::text(*r.instructions)}})};
    const auto& rest = r.prompt.messages.as_list().items;
    all.insert(all.end(), rest.begin(), rest.end());
    r.prompt.messages = list_of(all);
  }
  check_conversation(reading, r);
  if (reading.error) return *std::move(reading.error);
  r.echo = echo_of(r);
  return ResponsesRequest(std::move(r));
}

}  // namespace baton::api
