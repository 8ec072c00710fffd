#include "api/messages.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "api/event_samples.h"
#include "api/messages_writer.h"
#include "base/test_seed.h"

namespace baton::api {
namespace {

namespace json = boost::json;
namespace jinja = text::jinja;
using text::ChatValue;

constexpr std::string_view kLeast = R"("max_tokens":5,"messages":[{"role":"user","content":"a"}])";

std::string refusal(std::string_view body) {
  const auto r = parse_messages(body, {});
  return r.ok() ? "taken" : r.error().message;
}

// Messages in one line, as a template would meet them.
std::string shown(const ChatValue& v) {
  if (v.is_string()) return std::string(v.view());
  std::string text;
  if (v.is(jinja::Type::kList)) {
    for (const ChatValue& item : v.as_list().items) text += (text.empty() ? "" : ", ") + shown(item);
    return "[" + text + "]";
  }
  if (!v.is(jinja::Type::kDict)) return "?";
  for (const auto& [key, value] : v.as_dict().entries) text += fmt::format("{}{}: {}", text.empty() ? "" : ", ", key.view(), shown(value));
  return "{" + text + "}";
}

TEST(Messages, BlocksBecomeMessages) {
  const auto r =
      parse_messages(R"({"model":"m","max_tokens":100,"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],
    "messages":[
      {"role":"user","content":"Weather?"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"look it up","signature":"s"},{"type":"redacted_thinking","data":"x"},
        {"type":"text","text":"Wait."},{"type":"tool_use","id":"t1","name":"weather","input":{"city":"Bern"}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":[{"type":"text","text":"rain"}]},
        {"type":"tool_result","tool_use_id":"t2"},{"type":"text","text":"And?"}]}],
    "tools":[{"name":"weather","description":"d","input_schema":{"type":"object"}}],
    "tool_choice":{"type":"any","disable_parallel_tool_use":true},"stop_sequences":["END"],"temperature":1,
    "thinking":{"type":"enabled","budget_tokens":50},"metadata":{"user_id":"u"},"stream":true})",
                     {});
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(shown(r->prompt.messages),
            "[{role: system, content: [{type: text, text: Be brief.}]}, {role: user, content: Weather?}, "
            "{role: assistant, content: Wait., reasoning_content: look it up, tool_calls: [{id: t1, type: function, function: "
            "{name: weather, arguments: {city: Bern}}}]}, {role: tool, tool_call_id: t1, content: [{type: text, text: rain}]}, "
            "{role: tool, tool_call_id: t2, content: }, {role: user, content: [{type: text, text: And?}]}]");
  EXPECT_EQ(shown(r->prompt.tools), "[{type: function, function: {name: weather, description: d, parameters: {type: object}}}]");
  EXPECT_EQ(r->tools.choice, Tools::Choice::kRequired);
  EXPECT_FALSE(r->tools.parallel);
  EXPECT_EQ(r->sampling.stop, std::vector<std::string>{"END"});
  EXPECT_EQ(*r->sampling.max_tokens, 100);
  EXPECT_EQ(*r->thinking_token_budget, 50);
  EXPECT_EQ(r->user, "u");
  EXPECT_TRUE(r->stream.on);
  EXPECT_TRUE(r->prompt.add_generation_prompt);
  EXPECT_TRUE(r->ignored_fields.empty());
}

TEST(Messages, TheAssistantsLastMessageIsContinued) {
  const auto r = parse_messages(R"({"max_tokens":5,"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}]})", {});
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_TRUE(r->prompt.continue_final_message);
  EXPECT_FALSE(r->prompt.add_generation_prompt);
}

TEST(Messages, WhatIsWrongIsNamed) {
  const struct {
    const char* body;
    const char* message;
  } kCases[] = {
      {R"({"messages":[{"role":"user","content":"a"}]})", "max_tokens: is missing"},
      {R"({"max_tokens":5})", "messages: is missing"},
      {R"({"max_tokens":0,"messages":[{"role":"user","content":"a"}]})", "max_tokens: is 0"},
      {R"({"max_tokens":5,"messages":[]})", "messages: is empty"},
      {R"({"max_tokens":5,"messages":[7]})", "messages[0]: must be an object"},
      {R"({"max_tokens":5,"messages":[{"role":"tool","content":"a"}]})", "messages[0].role: must be 'user', 'assistant' or 'system'"},
      {R"({"max_tokens":5,"messages":[{"role":"user"}]})", "messages[0].content: is missing"},
      {R"({"max_tokens":5,"messages":[{"role":"user","content":[]}]})", "messages[0].content: is an empty list"},
      {R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]})",
       "messages[0].content[0].type: blocks of the type 'image' are not supported here"},
      {R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":[{"type":"image"}]}]}]})",
       "messages[0].content[0].content[0].type: blocks of the type 'image' are not supported here"},
      {R"({"max_tokens":5,"messages":[{"role":"user","content":[{"type":"tool_result"}]}]})",
       "messages[0].content[0].tool_use_id: must be a string"},
      {R"({"max_tokens":5,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":"x"}]}]})",
       "messages[0].content[0].input: must be an object"},
      {R"({"max_tokens":5,"system":[{"type":"image"}],"messages":[{"role":"user","content":"a"}]})", "system[0].type: blocks of the type"},
      {R"({"max_tokens":5,"tools":[{"type":"web_search_20250305","name":"w"}],"messages":[{"role":"user","content":"a"}]})",
       "tools[0].type: is 'web_search_20250305'; the server has no tools of its own"},
      {R"({"max_tokens":5,"tools":[{"name":"w"}],"messages":[{"role":"user","content":"a"}]})", "tools[0]: has no `input_schema`"},
      {R"({"max_tokens":5,"tool_choice":{"type":"tool","name":"g"},"messages":[{"role":"user","content":"a"}]})",
       "tool_choice: names 'g', which is not among the tools"},
      {R"({"max_tokens":5,"tool_choice":"auto","messages":[{"role":"user","content":"a"}]})",
       "tool_choice: is 'auto'; it must be an object"},
      {R"({"max_tokens":5,"stop_sequences":"a","messages":[{"role":"user","content":"a"}]})", "stop_sequences: is 'a'; it must be a list"},
      {R"({"max_tokens":5,"thinking":{"type":"on"},"messages":[{"role":"user","content":"a"}]})",
       "thinking: must be an object whose `type`"},
  };
  for (const auto& c : kCases) EXPECT_EQ(refusal(c.body).substr(0, std::string_view(c.message).size()), c.message) << c.body;
}

TEST(Messages, OutputConfig) {
  const auto r = parse_messages(
      fmt::format(R"({{{},"output_config":{{"effort":"high","format":{{"type":"json_schema","schema":{{"type":"object"}}}}}}}})", kLeast),
      {});
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->reasoning_effort, "high");
  EXPECT_EQ(r->grammar, (text::GrammarSpec{text::GrammarSpec::Kind::kJsonSchema, R"({"type":"object"})"}));
}

TEST(Messages, Counting) {
  const auto r = parse_count_tokens(R"({"model":"m","messages":[{"role":"user","content":"a"}],"max_tokens":5})", {});
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->ignored_fields, std::vector<std::string>{"max_tokens"});
}

struct Event {
  std::string name;
  json::value data;
};

std::vector<Event> events_of(std::string_view stream) {
  std::vector<Event> all;
  while (!stream.empty()) {
    const size_t line = stream.find('\n'), end = stream.find("\n\n");
    EXPECT_EQ(stream.substr(0, 7), "event: ");
    EXPECT_EQ(stream.substr(line + 1, 6), "data: ");
    all.push_back({std::string(stream.substr(7, line - 7)), json::parse(stream.substr(line + 7, end - line - 7))});
    EXPECT_EQ(all.back().data.at("type").as_string(), all.back().name);
    stream.remove_prefix(end + 2);
  }
  return all;
}

// What Anthropic's client makes of a stream.
json::value assembled(const std::vector<Event>& events) {
  json::object message;
  json::array content;
  std::string partial;
  int64_t open = -1;
  for (const auto& [name, data] : events) {
    if (name == "message_start") message = data.at("message").as_object();
    if (name == "content_block_start") {
      EXPECT_EQ(open, -1);
      open = data.at("index").as_int64();
      EXPECT_EQ(open, static_cast<int64_t>(content.size()));
      content.push_back(data.at("content_block"));
      partial.clear();
    }
    if (name == "content_block_delta") {
      EXPECT_EQ(data.at("index").as_int64(), open);
      json::object& block = content.back().as_object();
      const json::object& delta = data.at("delta").as_object();
      const auto grow = [&](const char* key) {
        block[key] = std::string(block.at(key).as_string()) + std::string(delta.at(key).as_string());
      };
      if (delta.at("type") == "text_delta") grow("text");
      if (delta.at("type") == "thinking_delta") grow("thinking");
      if (delta.at("type") == "input_json_delta") partial += delta.at("partial_json").as_string();
    }
    if (name == "content_block_stop") {
      if (content.back().at("type") == "tool_use" && !partial.empty()) content.back().as_object()["input"] = json::parse(partial);
      open = -1;
    }
    if (name == "message_delta") {
      EXPECT_EQ(open, -1);
      for (const auto& m : data.at("delta").as_object()) message[m.key()] = m.value();
      message["usage"] = data.at("usage");
    }
  }
  message["content"] = content;
  return message;
}

TEST(Messages, EventsSayWhatTheWholeAnswerSays) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const AnswerHead head{.id = "msg_1", .created = 0, .model = "m"};
  for (int round = 0; round < 300; ++round) {
    MessageEventWriter w(head);
    std::string stream, whole;
    w.start(stream, {.prompt = 9, .cached = 4});
    auto events = random_events(random);
    for (auto& event : events)
      if (event.text == "[1,") event.text = " ";  // arguments have to be JSON here
    for (auto& event : events)
      if (event.text == "}") event.text = "1}";
    Choice choice;
    for (const auto& event : events) {
      w.events(stream, {&event, 1});
      choice.message.add(event);
    }
    if (random() % 2 == 0) choice.finish.matched = std::string("END");
    const Usage usage{.prompt = 9, .completion = 7, .reasoning = 2, .cached = 4};
    w.finish(stream, choice.finish, usage);
    append_message_answer(whole, head, choice, usage);
    const auto all = events_of(stream);
    ASSERT_EQ(all.front().name, "message_start");
    ASSERT_EQ(all.back().name, "message_stop");
    ASSERT_EQ(assembled(all), json::parse(whole)) << stream << whole;
  }
}

TEST(Messages, Ends) {
  const auto reason = [](const Finish& finish) {
    std::string out;
    append_message_answer(out, {}, {.finish = finish}, {});
    const json::value answer = json::parse(out);
    return std::string(answer.at("stop_reason").as_string()) + json::serialize(answer.at("stop_sequence"));
  };
  EXPECT_EQ(reason({}), "end_turnnull");
  EXPECT_EQ(reason({text::FinishReason::kLength, {}}), "max_tokensnull");
  EXPECT_EQ(reason({text::FinishReason::kToolCalls, {}}), "tool_usenull");
  EXPECT_EQ(reason({text::FinishReason::kStop, std::string("E")}), "stop_sequence\"E\"");
  std::string out;
  MessageEventWriter({.id = "msg_1", .model = "m"}).error(out, ApiError::overloaded("full"));
  EXPECT_EQ(out,
            "event: error\ndata: "
            "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"full\"},\"request_id\":\"msg_1\"}\n\n");
}

}  // namespace
}  // namespace baton::api
