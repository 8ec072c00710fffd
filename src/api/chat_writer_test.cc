#include "api/chat_writer.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <limits>

#include "api/event_samples.h"
#include "api/json_text.h"
#include "base/test_seed.h"

namespace baton::api {
namespace {

namespace json = boost::json;
using Kind = text::OutputEvent::Kind;

const AnswerHead kHead{.id = "chatcmpl-1", .created = 7, .model = "m\"1"};

// The data of the events of a stream.
std::vector<std::string> events_of(std::string_view stream) {
  std::vector<std::string> all;
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    EXPECT_NE(end, std::string_view::npos);
    EXPECT_EQ(stream.substr(0, 6), "data: ");
    all.emplace_back(stream.substr(6, end - 6));
    EXPECT_EQ(all.back().find('\n'), std::string::npos);
    stream.remove_prefix(end + 2);
  }
  return all;
}

TEST(ChatWriter, AStream) {
  ChatChunkWriter w(kHead, {.include_usage = true});
  std::string out;
  w.role(out, 0);
  const text::OutputEvent events[] = {{Kind::kReasoning, -1, "hm", {}},
                                      {Kind::kContent, -1, "Hi", {}},
                                      {Kind::kToolStart, 0, "f", {}},
                                      {Kind::kToolArguments, 0, "{}", {}},
                                      {Kind::kToolEnd, 0, "", {}}};
  w.events(out, 0, events);
  w.finish(out, 0, {text::FinishReason::kToolCalls, {}});
  w.usage(out, {.prompt = 5, .completion = 3, .reasoning = 1, .cached = 4});
  w.done(out);
  const std::string head = R"({"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"m\"1","system_fingerprint":null,)";
  const auto chunk = [&](std::string_view delta, std::string_view end = R"(null)") {
    return head + R"("choices":[{"index":0,"delta":{)" + std::string(delta) + R"(},"logprobs":null,"finish_reason":)" + std::string(end) +
           R"(}],"usage":null})";
  };
  EXPECT_EQ(events_of(out),
            (std::vector<std::string>{
                chunk(R"("role":"assistant","content":"")"), chunk(R"("reasoning_content":"hm")"), chunk(R"("content":"Hi")"),
                chunk(R"("tool_calls":[{"index":0,"id":")" + call_id("call_", "chatcmpl-1", 0, 0) +
                      R"(","type":"function","function":{"name":"f","arguments":""}}])"),
                chunk(R"("tool_calls":[{"index":0,"function":{"arguments":"{}"}}])"), chunk("", R"("tool_calls")"),
                head + R"("choices":[],"usage":{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8,)"
                       R"("prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":1}}})",
                "[DONE]"}));
}

TEST(ChatWriter, FinishSaysWhatWasMet) {
  ChatChunkWriter w(kHead, {});
  std::string out;
  w.finish(out, 0, {text::FinishReason::kStop, std::string("\"end\"")});
  EXPECT_NE(out.find(R"("finish_reason":"stop","stop_reason":"\"end\"")"), std::string::npos) << out;
  out.clear();
  w.finish(out, 0, {text::FinishReason::kStop, 17});
  EXPECT_NE(out.find(R"("finish_reason":"stop","stop_reason":17)"), std::string::npos) << out;
}

TEST(ChatWriter, ErrorsAreEvents) {
  ChatChunkWriter w(kHead, {});
  std::string out;
  w.error(out, ApiError::internal("broken \"here\""));
  EXPECT_EQ(
      out,
      "data: {\"error\":{\"message\":\"broken \\\"here\\\"\",\"type\":\"server_error\",\"param\":null,\"code\":\"internal_error\"}}\n\n");
}

TEST(ChatWriter, NumbersAreJson) {
  std::string out;
  for (const float v : {-std::numeric_limits<float>::infinity(), 0.1F, std::numeric_limits<float>::max()}) {
    append_number(out, v);
    out += ' ';
  }
  EXPECT_EQ(out, "-3.4028235e+38 0.1 3.4028235e+38 ");
  out.clear();
  append_string(out, "a\xff\xe6\xbc");
  EXPECT_EQ(out, "\"a\uFFFD\uFFFD\"");
}

// What a client keeps of a choice.
struct Assembled {
  std::string content, reasoning, finish;
  std::vector<std::string> calls;  // id name arguments
  json::array logprobs;
  bool operator==(const Assembled&) const = default;
};

std::string text_of(const json::value* v) { return v == nullptr || v->is_null() ? "" : std::string(v->as_string()); }

void take_choice(Assembled& a, const json::object& choice, const char* part) {
  const json::object& delta = choice.at(part).as_object();
  a.content += text_of(delta.if_contains("content"));
  a.reasoning += text_of(delta.if_contains("reasoning_content"));
  a.finish += text_of(choice.if_contains("finish_reason"));
  if (const auto* calls = delta.if_contains("tool_calls")) {
    size_t next = 0;
    for (const json::value& call : calls->as_array()) {
      const json::object& o = call.as_object();
      const size_t index = o.contains("index") ? static_cast<size_t>(o.at("index").as_int64()) : next;
      ++next;
      if (a.calls.size() <= index) a.calls.resize(index + 1);
      if (o.contains("id")) a.calls[index] += text_of(&o.at("id")) + " " + text_of(&o.at("function").at("name")) + " ";
      a.calls[index] += text_of(&o.at("function").at("arguments"));
    }
  }
  if (const auto& l = choice.at("logprobs"); l.is_object())
    for (const json::value& entry : l.at("content").as_array()) a.logprobs.push_back(entry);
}

TEST(ChatWriter, ChunksSayWhatTheWholeAnswerSays) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 400; ++round) {
    const int32_t choices = 1 + static_cast<int32_t>(random() % 3);
    const bool logprobs = random() % 2 == 0;
    ChatChunkWriter w(kHead, {.choices = choices, .logprobs = logprobs, .continuous_usage = random() % 2 == 0});
    std::string stream;
    std::vector<Choice> whole(static_cast<size_t>(choices));
    for (int32_t c = 0; c < choices; ++c) {
      w.role(stream, c);
      const auto events = random_events(random);
      for (size_t at = 0; at < events.size();) {  // in cuts of any length
        const size_t n = std::min<size_t>(random() % 3, events.size() - at);
        std::vector<TokenLogprobs> tokens;
        for (auto k = random() % 3; k > 0; --k) tokens.push_back(random_logprob(random));
        w.events(stream, c, std::span(events).subspan(at, n), tokens);
        Choice& choice = whole[static_cast<size_t>(c)];
        for (size_t i = at; i < at + n; ++i) choice.message.add(events[i]);
        choice.logprobs.insert(choice.logprobs.end(), tokens.begin(), tokens.end());
        at += n;
      }
      w.finish(stream, c, whole[static_cast<size_t>(c)].finish);
    }
    w.done(stream);

    std::vector<Assembled> from_chunks(whole.size()), from_whole(whole.size());
    auto events = events_of(stream);
    ASSERT_EQ(events.back(), "[DONE]");
    events.pop_back();
    for (const std::string& event : events) {
      const json::value chunk = json::parse(event);
      for (const json::value& choice : chunk.at("choices").as_array()) {
        const auto index = static_cast<size_t>(choice.at("index").as_int64());
        EXPECT_EQ(from_chunks[index].finish, "");  // nothing comes after the end
        if (!choice.at("finish_reason").is_null()) {
          EXPECT_TRUE(choice.at("delta").as_object().empty());
          EXPECT_TRUE(choice.at("logprobs").is_null());
        }
        take_choice(from_chunks[index], choice.as_object(), "delta");
      }
    }
    std::string answer;
    const Usage usage;
    append_chat_answer(answer, kHead, {.choices = whole, .usage = usage, .logprobs = logprobs});
    const json::value parsed = json::parse(answer);
    for (const json::value& choice : parsed.at("choices").as_array())
      take_choice(from_whole[static_cast<size_t>(choice.at("index").as_int64())], choice.as_object(), "message");
    ASSERT_EQ(from_chunks, from_whole) << stream << answer;
  }
}

TEST(ChatWriter, PromptLogprobs) {
  std::string out;
  std::vector<TokenLogprobs> tokens(3);
  tokens[0].token = {1, 0, "a"};
  tokens[0].known = false;
  tokens[1].token = {2, -3, "b"};
  tokens[2].token = {5, -std::numeric_limits<float>::infinity(), "c"};
  for (const size_t i : {1, 2}) tokens[i].top.push_back({5, -1, "c"});
  const Usage usage;
  const Choice choice;
  append_chat_answer(out, kHead, {.choices = {&choice, 1}, .usage = usage, .prompt_logprobs = tokens});
  EXPECT_EQ(json::serialize(json::parse(out).at("prompt_logprobs")),
            json::serialize(json::parse(R"([null,{"5":{"logprob":-1,"rank":1,"decoded_token":"c"},"2":{"logprob":-3,"decoded_token":"b"}},
                                          {"5":{"logprob":-1,"rank":1,"decoded_token":"c"}}])")));
}

}  // namespace
}  // namespace baton::api
