// One answer in the shape of every API, whole and as a stream, as the files in tests/data/api. tests/api/shapes_check.py holds the same
// files against the types of the official clients.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "api/chat_writer.h"
#include "api/completion_writer.h"
#include "api/generate.h"
#include "api/messages_writer.h"
#include "api/responses.h"
#include "api/responses_writer.h"
#include "api/tokenize.h"
#include "base/file.h"

namespace baton::api {
namespace {

using Kind = text::OutputEvent::Kind;

const std::vector<text::OutputEvent>& events() {
  static const std::vector<text::OutputEvent> all = {{Kind::kReasoning, -1, "They ask for the weather;\n", {}},
                                                     {Kind::kReasoning, -1, "I'll look.", {}},
                                                     {Kind::kContent, -1, "Let me \"look\"", {}},
                                                     {Kind::kContent, -1, " \u6F22\U0001F600.", {}},
                                                     {Kind::kToolStart, 0, "weather", {}},
                                                     {Kind::kToolArguments, 0, "{\"city\":\"", {}},
                                                     {Kind::kToolArguments, 0, "Z\\u00fcrich\"}", {}},
                                                     {Kind::kToolEnd, 0, "", {}},
                                                     {Kind::kToolStart, 1, "time", {}},
                                                     {Kind::kToolArguments, 1, "{}", {}},
                                                     {Kind::kToolEnd, 1, "", {}}};
  return all;
}

Message message() {
  Message m;
  for (const auto& event : events()) m.add(event);
  return m;
}

std::vector<TokenLogprobs> logprobs() {
  std::vector<TokenLogprobs> all(2);
  all[0].token = {7, -0.125F, "Let"};
  all[1].token = {9, -2.5F, "\xE6\xBC"};
  for (TokenLogprobs& t : all) t.top = {t.token, {11, -3, " me"}};
  return all;
}

AnswerHead head(std::string id) { return {.id = std::move(id), .created = 1764500000, .model = "glm-5.3-flash", .fingerprint = "fp_1"}; }

const Usage kUsage{
    .prompt = 120, .completion = 40, .reasoning = 12, .cached = 64, .drafted = 30, .accepted = 21, .timing = Timing{0.5, 0.25, 1}};
const Finish kCalls{text::FinishReason::kToolCalls, {}};

void chat(std::map<std::string, std::string>& files) {
  std::string& whole = files["chat.json"];
  const Choice choice{.message = message(), .finish = kCalls, .logprobs = logprobs()};
  append_chat_answer(whole, head("chatcmpl-1"),
                     {.choices = {&choice, 1}, .usage = kUsage, .logprobs = true, .prompt_logprobs = choice.logprobs});
  std::string& stream = files["chat.sse"];
  ChatChunkWriter w(head("chatcmpl-1"), {.logprobs = true, .include_usage = true});
  w.role(stream, 0);
  w.events(stream, 0, events(), logprobs());
  w.finish(stream, 0, kCalls);
  w.usage(stream, kUsage);
  w.done(stream);
}

void completion(std::map<std::string, std::string>& files) {
  const CompletionChoice choice{.text = "Let\u6F22", .finish = {text::FinishReason::kStop, std::string("END")}, .logprobs = logprobs()};
  append_completion_answer(files["completion.json"], head("cmpl-1"), {&choice, 1}, kUsage, true);
  std::string& stream = files["completion.sse"];
  CompletionChunkWriter w(head("cmpl-1"), {.logprobs = true, .include_usage = true});
  w.text(stream, 0, choice.text, choice.logprobs);
  w.finish(stream, 0, choice.finish);
  w.usage(stream, kUsage);
  w.done(stream);
}

void messages(std::map<std::string, std::string>& files) {
  append_message_answer(files["messages.json"], head("msg_1"), {.message = message(), .finish = kCalls}, kUsage);
  append_token_count(files["count_tokens.json"], 120);
  std::string& stream = files["messages.sse"];
  MessageEventWriter w(head("msg_1"));
  w.start(stream, kUsage);
  w.events(stream, events());
  w.finish(stream, kCalls, kUsage);
}

void responses(std::map<std::string, std::string>& files) {
  const auto request = parse_responses(R"({"input":"Weather?","instructions":"Be brief.","metadata":{"a":"b"},"temperature":0.5,
    "tools":[{"type":"function","name":"weather","parameters":{"type":"object"},"strict":false}],"reasoning":{"effort":"low"}})",
                                       {});
  ASSERT_TRUE(request.ok()) << request.error().message;
  ResponseHead h;
  static_cast<AnswerHead&>(h) = head("resp_1");
  h.echo = request->echo;
  append_response_answer(files["responses.json"], h, {.message = message(), .finish = kCalls}, kUsage);
  std::string& stream = files["responses.sse"];
  ResponseEventWriter w(h);
  w.start(stream);
  w.events(stream, events());
  w.finish(stream, kCalls, kUsage);
  std::string& failed = files["responses_failed.sse"];
  ResponseEventWriter f(h);
  f.start(failed);
  f.events(failed, std::span(events()).first(3));
  f.error(failed, ApiError::internal("The device failed."));
}

void others(std::map<std::string, std::string>& files) {
  const int32_t ids[] = {7, 9};
  const auto tokens = logprobs();
  append_generated(files["generate.json"], {.id = "r",
                                            .text = "Let\u6F22",
                                            .ids = ids,
                                            .finish = Finish{text::FinishReason::kStop, 9},
                                            .usage = kUsage,
                                            .seconds = 1.5,
                                            .logprobs = true,
                                            .output_logprobs = tokens});
  const ModelCard card{.id = "glm-5.3-flash", .created = 1764500000, .max_model_len = 131072};
  append_models(files["models.json"], {&card, 1});
  const ApiError error = ApiError::field("messages[2].role", "is 'bot'");
  files["error_openai.json"] = error_body(Dialect::kOpenAi, error);
  files["error_anthropic.json"] = error_body(Dialect::kAnthropic, error, "req_1");
}

TEST(GoldenAnswers, AreTheFiles) {
  std::map<std::string, std::string> files;
  chat(files);
  completion(files);
  messages(files);
  responses(files);
  others(files);
  for (const auto& [name, content] : files) {
    const std::string path = BATON_TEST_DATA "/api/" + name;
    if (std::getenv("BATON_WRITE_GOLDEN") != nullptr) {
      auto file = PendingFile::create(path);
      ASSERT_TRUE(file.ok() && file->write(content).ok() && file->commit().ok()) << path;
      continue;
    }
    const auto golden = read_regular_file(path, 1 << 20);
    ASSERT_TRUE(golden.ok()) << golden.error().message;
    EXPECT_EQ(content, *golden) << name << "; if this is meant, BATON_WRITE_GOLDEN=1 and this test write the files anew";
  }
}

}  // namespace
}  // namespace baton::api
