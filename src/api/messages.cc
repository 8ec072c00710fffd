#include "api/messages.h"

#include <algorithm>

#include "api/conversation.h"
#include "api/endpoints.h"
#include "api/grammar_fields.h"
#include "api/message_blocks.h"

namespace baton::api {
namespace {

namespace json = boost::json;
using text::ChatValue;
namespace jinja = text::jinja;

// The system prompt is kept apart until the messages are there: fields come in any order.
struct MessagesRequest : ChatRequest {
  ChatValue system{};
};

void read_messages(FieldReader& in, Request& out) {
  const ChatValue messages = template_value(in);
  if (in.failed()) return;
  if (messages.is(jinja::Type::kList) && messages.as_list().items.size() > in.limits().messages)
    return in.wrong(fmt::format("has {} elements; {} are the most", messages.as_list().items.size(), in.limits().messages));
  chat(out).prompt.messages = chat_messages(in.reading(), messages);
  if (!in.failed() && chat(out).prompt.messages.as_list().items.empty()) in.wrong("is empty; one message at least is needed");
}

void read_system(FieldReader& in, Request& out) {
  const ChatValue system = template_value(in);
  if (!in.failed()) static_cast<MessagesRequest&>(out).system = system_message(in.reading(), system);
}

void read_tools_of_messages(FieldReader& in, Request& out) {
  read_flat_tools(in, chat(out), "input_schema", [](FieldReader& tool, const json::object& members) {
    const auto* type = members.if_contains("type");
    if (type != nullptr && !type->is_null() && *type != "custom")
      return tool.member("type", *type).unsupported(fmt::format("is {}; the server has no tools of its own", shown(*type)));
    const auto* schema = members.if_contains("input_schema");
    if (schema == nullptr || !schema->is_object()) return tool.wrong("has no `input_schema`, or one that is no object");
  });
}

void read_choice_of_messages(FieldReader& in, Request& out) {
  using Choice = Tools::Choice;
  const json::object* members = in.object();
  if (members == nullptr) return;
  const auto* type = members->if_contains("type");
  const std::string_view word = type != nullptr && type->is_string() ? std::string_view(type->get_string()) : std::string_view();
  Tools& tools = chat(out).tools;
  if (word == "any") {
    tools.choice = Choice::kRequired;
  } else if (word == "none") {
    tools.choice = Choice::kNone;
  } else if (word == "tool") {
    const auto* name = members->if_contains("name");
    if (name == nullptr || !name->is_string()) return in.wrong("names no tool");
    tools.choice = Choice::kNamed;
    tools.named = std::string(name->get_string());
  } else if (word != "auto") {
    return in.wrong("must be an object whose `type` is 'auto', 'any', 'tool' or 'none'");
  }
  if (const auto* single = members->if_contains("disable_parallel_tool_use"); single != nullptr && !single->is_null())
    if (const auto on = in.member("disable_parallel_tool_use", *single).flag()) tools.parallel = !*on;
}

void read_thinking_of_messages(FieldReader& in, Request& out) {
  const json::object* members = in.object();
  if (members == nullptr) return;
  const auto* type = members->if_contains("type");
  const std::string_view word = type != nullptr && type->is_string() ? std::string_view(type->get_string()) : std::string_view();
  if (word == "adaptive") return;
  if (word == "disabled") return set_option(chat(out), "enable_thinking", ChatValue::boolean(false));
  if (word != "enabled") return in.wrong("must be an object whose `type` is 'enabled', 'disabled' or 'adaptive'");
  if (const auto* budget = members->if_contains("budget_tokens"); budget != nullptr && !budget->is_null())
    if (const auto tokens = in.member("budget_tokens", *budget).whole(0, in.limits().max_tokens))
      out.thinking_token_budget = static_cast<int32_t>(*tokens);
}

void read_output_config(FieldReader& in, Request& out) {
  constexpr Field kConfig[] = {
      {.name = "effort",
       .type = "string",
       .what = "how much to think",
       .read = [](FieldReader& i, Request& o) { read_reasoning_effort(i, chat(o)); }},
      {.name = "format", .type = "object", .what = "a JSON schema", .read = read_response_format},
  };
  const std::span<const Field> groups[] = {kConfig};
  read_fields(in, groups, out);
}

void read_metadata(FieldReader& in, Request& out) {
  constexpr Field kMetadata[] = {
      {.name = "user_id", .type = "string", .what = "who asks", .read = [](FieldReader& i, Request& o) { i.into(o.user); }}};
  const std::span<const Field> groups[] = {kMetadata};
  read_fields(in, groups, out);
}

void read_stop_sequences(FieldReader& in, Request& out) {
  const json::array* stops = in.array(in.limits().stop_strings);
  if (stops == nullptr) return;
  for (size_t i = 0; i < stops->size(); ++i) {
    FieldReader item = in.item(i, (*stops)[i]);
    const auto stop = item.text(in.limits().stop_bytes);
    if (!stop) return;
    if (stop->empty()) return item.wrong("is empty; every output would stop at once");
    out.sampling.stop.emplace_back(*stop);
  }
}

constexpr Field kPromptFields[] = {
    {.name = "model",
     .type = "string",
     .what = "a name that GET /v1/models lists; not given: the model that is served",
     .read = [](FieldReader& in, Request& out) { in.into(out.model); }},
    {.name = "messages",
     .type = "list",
     .what = "blocks of text, thinking, tool use and tool results; a last message of the assistant is continued",
     .required = true,
     .read = read_messages},
    {.name = "system", .type = "string or list", .what = "text, or text blocks", .read = read_system},
    {.name = "tools", .type = "list", .what = "tools of clients, with an `input_schema`; 512 at most", .read = read_tools_of_messages},
    {.name = "tool_choice",
     .type = "object",
     .what = "`auto`, `any`, `none`, or `tool` by name; `disable_parallel_tool_use`",
     .read = read_choice_of_messages},
    {.name = "thinking",
     .type = "object",
     .what = "`enabled` with `budget_tokens`, `disabled`, or `adaptive`, which is the model's own way",
     .read = read_thinking_of_messages},
    {.name = "output_config", .type = "object", .what = "`effort`, and `format` with a JSON schema", .read = read_output_config},
    {.name = "output_format", .type = "object", .what = "the earlier name of `output_config.format`", .read = read_response_format},
    without_effect("cache_control", "every prompt is looked up in the cache, and what it has room for is kept"),
    without_effect("context_management", "the conversation is taken as it is sent"),
    refused("mcp_servers", "the server calls no tools", "[]"),
    refused("container", "there are no containers"),
};

constexpr Field kFields[] = {
    {.name = "max_tokens",
     .type = "integer",
     .what = "tokens of the answer, thinking included",
     .range = {1, 0x1p24},
     .required = true,
     .read = [](FieldReader& in, Request& out) { in.into(out.sampling.max_tokens); }},
    {.name = "stop_sequences",
     .type = "list of strings",
     .what = "the output ends before the first of these; 64 of 1,024 bytes at most",
     .read = read_stop_sequences},
    {.name = "stream",
     .type = "boolean",
     .what = "the answer as server-sent events",
     .read = [](FieldReader& in, Request& out) { in.into(out.stream.on); }},
    {.name = "metadata", .type = "object", .what = "`user_id`: who asks; for logs", .read = read_metadata},
    without_effect("service_tier", "there is one tier; see `priority`"),
    without_effect("inference_geo", "there is one place"),
    without_effect("speed", "there is one speed"),
    refused("n", "this API has one answer to a request", "1"),
};

ApiResult<ChatRequest> parsed(std::string_view text, FieldGroups groups, const ParseLimits& limits) {
  auto body = Body::parse(text, limits);
  if (!body.ok()) return body.error();
  MessagesRequest r;
  Reading reading{limits, r.ignored_fields};
  read_fields(*body, groups, reading, r);
  if (reading.error) return *std::move(reading.error);
  if (!r.system.is_missing()) {
    std::vector<ChatValue> all = {r.system};
    const auto& rest = r.prompt.messages.as_list().items;
    all.insert(all.end(), rest.begin(), rest.end());
    r.prompt.messages = list_of(all);
  }
  const jinja::Dict& last = r.prompt.messages.as_list().items.back().as_dict();
  if (last.find("role")->view() == "assistant" && last.find("tool_calls") == nullptr) {
    r.prompt.continue_final_message = true;
    r.prompt.add_generation_prompt = false;
  }
  check_conversation(reading, r);
  if (reading.error) return *std::move(reading.error);
  return ChatRequest(std::move(r));
}

}  // namespace

std::vector<std::span<const Field>> messages_groups() { return {kPromptFields, kFields, sampling_fields()}; }
std::vector<std::span<const Field>> count_tokens_groups() { return {kPromptFields}; }

ApiResult<ChatRequest> parse_messages(std::string_view text, const ParseLimits& limits) { return parsed(text, messages_groups(), limits); }
ApiResult<ChatRequest> parse_count_tokens(std::string_view text, const ParseLimits& limits) {
  return parsed(text, count_tokens_groups(), limits);
}

}  // namespace baton::api
