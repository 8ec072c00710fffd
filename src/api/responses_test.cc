#include "api/responses.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "api/event_samples.h"
#include "api/responses_writer.h"
#include "base/test_seed.h"

namespace baton::api {
namespace {

namespace json = boost::json;

std::string refusal(std::string_view body) {
  const auto r = parse_responses(body, {});
  return r.ok() ? "taken" : r.error().message;
}

TEST(Responses, ItemsBecomeMessages) {
  const auto r = parse_responses(R"({"model":"m","instructions":"Be brief.","input":[
      {"role":"user","content":[{"type":"input_text","text":"Weather?"}]},
      {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"look"}]},
      {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Wait.","annotations":[]}]},
      {"type":"function_call","call_id":"c1","name":"weather","arguments":"{\"city\":\"Bern\"}"},
      {"type":"function_call_output","call_id":"c1","output":"rain"},
      {"role":"developer","content":"d"}],
    "tools":[{"type":"function","name":"weather","parameters":{"type":"object"},
              "strict":true}],
    "tool_choice":{"type":"function","name":"weather"},"max_output_tokens":9,"reasoning":{"effort":"low","summary":"auto"},
    "text":{"format":{"type":"json_schema","name":"x","schema":{"type":"object"}}},"metadata":{"a":"b"},"store":false,
    "include":["reasoning.encrypted_content"],"stream":true})",
                                 {});
  ASSERT_TRUE(r.ok()) << r.error().message;
  const auto& messages = r->prompt.messages.as_list().items;
  ASSERT_EQ(messages.size(), 5U);
  const auto text = [&](size_t i, std::string_view key) { return std::string(messages[i].as_dict().find(key)->view()); };
  EXPECT_EQ(text(0, "role") + text(0, "content"), "systemBe brief.");
  EXPECT_EQ(text(1, "role") + text(1, "content"), "userWeather?");
  EXPECT_EQ(text(2, "role") + text(2, "content") + text(2, "reasoning_content"), "assistantWait.look");
  EXPECT_EQ(messages[2].as_dict().find("tool_calls")->as_list().items.size(), 1U);
  EXPECT_EQ(text(3, "role") + text(3, "content") + text(3, "tool_call_id"), "toolrainc1");
  EXPECT_EQ(text(4, "role") + text(4, "content"), "systemd");
  EXPECT_EQ(r->tools.named, "weather");
  EXPECT_EQ(r->reasoning_effort, "low");
  EXPECT_TRUE(r->grammar);
  EXPECT_TRUE(r->ignored_fields.empty());
  EXPECT_EQ(r->echo.find('\n'), std::string::npos);
  const json::value echo = json::parse("{" + r->echo + "}");
  EXPECT_EQ(json::serialize(echo.at("tools")), R"([{"type":"function","name":"weather","parameters":{"type":"object"},"strict":true}])");
  EXPECT_EQ(json::serialize(echo.at("metadata")), R"({"a":"b"})");
  EXPECT_EQ(echo.at("max_output_tokens").as_int64(), 9);
}

TEST(Responses, WhatIsWrongIsNamed) {
  const struct {
    const char* body;
    const char* message;
  } kCases[] = {
      {R"({})", "input: is missing"},
      {R"({"input":5})", "input: must be a string or a list of items"},
      {R"({"input":[]})", "input: is empty"},
      {R"({"input":[5]})", "input[0]: must be an object"},
      {R"({"input":[{"type":"item_reference","id":"x"}]})", "input[0].type: items of the type 'item_reference' are not supported"},
      {R"({"input":[{"role":"user"}]})", "input[0].content: is missing"},
      {R"({"input":[{"role":"bot","content":"a"}]})", "input[0].role: must be 'user'"},
      {R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})",
       "input[0].content[0].type: parts of the type 'input_image' are not supported"},
      {R"({"input":[{"type":"function_call","call_id":"1","name":"f","arguments":"["}]})",
       "input[0].arguments: must be a string that holds"},
      {R"({"input":"a","store":true})", "store: answers are not stored"},
      {R"({"input":"a","previous_response_id":"r"})", "previous_response_id: answers are not stored"},
      {R"({"input":"a","background":true})", "background: answers are not stored"},
      {R"({"input":"a","truncation":"auto"})", "truncation: prompts are never shortened silently"},
      {R"({"input":"a","include":["file_search_call.results"]})", "include[0]: cannot be included"},
      {R"({"input":"a","tools":[{"type":"web_search"}]})", "tools[0].type: must be 'function'"},
      {R"({"input":"a","max_output_tokens":0})", "max_output_tokens: is 0"},
  };
  for (const auto& c : kCases) EXPECT_EQ(refusal(c.body).substr(0, std::string_view(c.message).size()), c.message) << c.body;
}

struct Event {
  std::string name;
  json::object data;
};

std::vector<Event> events_of(std::string_view stream) {
  std::vector<Event> all;
  while (!stream.empty()) {
    const size_t line = stream.find('\n'), end = stream.find("\n\n");
    all.push_back({std::string(stream.substr(7, line - 7)), json::parse(stream.substr(line + 7, end - line - 7)).as_object()});
    EXPECT_EQ(all.back().data.at("type").as_string(), all.back().name);
    EXPECT_EQ(all.back().data.at("sequence_number").as_int64(), static_cast<int64_t>(all.size()) - 1);
    stream.remove_prefix(end + 2);
  }
  return all;
}

// The output as its events build it up; the done events have to say the same.
json::array assembled(const std::vector<Event>& events) {
  json::array output;
  for (const auto& [name, data] : events) {
    if (!data.contains("output_index")) continue;
    const auto index = static_cast<size_t>(data.at("output_index").as_int64());
    if (name == "response.output_item.added") {
      EXPECT_EQ(index, output.size());
      output.push_back(data.at("item"));
      continue;
    }
    json::object& item = output[index].as_object();
    if (data.contains("item_id")) {
      EXPECT_EQ(data.at("item_id"), item.at("id"));
    }
    if (name == "response.content_part.added") item.at("content").as_array().push_back(data.at("part"));
    const bool call = item.at("type") == "function_call";
    json::value& text = call                                    ? item.at("arguments")
                        : item.at("content").as_array().empty() ? item.at("type")
                                                                : item.at("content").at(0).at("text");
    if (name.ends_with(".delta")) text = std::string(text.as_string()) + std::string(data.at("delta").as_string());
    if (name.ends_with("text.done")) {
      EXPECT_EQ(data.at("text"), text);
    }
    if (name.ends_with("arguments.done")) {
      EXPECT_EQ(data.at("arguments"), text);
    }
    if (name == "response.content_part.done") {
      EXPECT_EQ(data.at("part"), item.at("content").at(0));
    }
    if (name == "response.output_item.done") {
      item["status"] = data.at("item").at("status");
      EXPECT_EQ(data.at("item"), output[index]);
    }
  }
  return output;
}

TEST(Responses, EventsSayWhatTheWholeAnswerSays) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  ResponseHead head;
  head.id = "resp_1";
  head.model = "m";
  for (int round = 0; round < 300; ++round) {
    ResponseEventWriter w(head);
    std::string stream, whole;
    w.start(stream);
    Choice choice;
    if (random() % 3 == 0) choice.finish.reason = text::FinishReason::kLength;
    for (const auto& event : random_events(random)) {
      w.events(stream, {&event, 1});
      choice.message.add(event);
    }
    const Usage usage{.prompt = 9, .completion = 7, .reasoning = 2, .cached = 4};
    w.finish(stream, choice.finish, usage);
    EXPECT_EQ(w.message(), choice.message);
    append_response_answer(whole, head, choice, usage);
    const auto events = events_of(stream);
    ASSERT_EQ(events[0].name, "response.created");
    ASSERT_EQ(events[1].name, "response.in_progress");
    ASSERT_EQ(events.back().name, choice.finish.reason == text::FinishReason::kLength ? "response.incomplete" : "response.completed");
    const json::value answer = json::parse(whole);
    ASSERT_EQ(events.back().data.at("response"), answer);
    // A call that ended before the answer was cut is complete in its own event, and the last item of an answer that was cut is not.
    json::array built = assembled(events), said = answer.at("output").as_array();
    for (auto* list : {&built, &said})
      if (!list->empty() && list->back().at("type") == "function_call") list->back().as_object()["status"] = "";
    ASSERT_EQ(built, said) << stream;
  }
}

TEST(Responses, Errors) {
  ResponseHead head;
  head.id = "resp_1";
  ResponseEventWriter w(head);
  std::string out;
  w.start(out);
  out.clear();
  w.error(out, ApiError::internal("broken"));
  EXPECT_EQ(
      out.substr(0, out.find("\n\n")),
      "event: error\ndata: {\"type\":\"error\",\"sequence_number\":2,\"code\":\"internal_error\",\"message\":\"broken\",\"param\":null}");
  const size_t at = out.find("event: response.failed\ndata: ");
  ASSERT_NE(at, std::string::npos);
  const json::value failed = json::parse(out.substr(at + 29, out.size() - at - 31));
  EXPECT_EQ(failed.at("response").at("status").as_string(), "failed");
  EXPECT_EQ(failed.at("response").at("error").at("message").as_string(), "broken");
}

}  // namespace
}  // namespace baton::api
