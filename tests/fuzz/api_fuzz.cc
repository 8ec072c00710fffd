// Any bytes as the body of every endpoint: refused with a message, or taken and then in its bounds. The same bytes as what a model wrote:
// the writers make valid JSON of them.
#include <boost/json/parse.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "api/chat.h"
#include "api/chat_writer.h"
#include "api/completion.h"
#include "api/generate.h"
#include "api/messages.h"
#include "api/messages_writer.h"
#include "api/responses.h"
#include "api/responses_writer.h"
#include "api/tokenize.h"

namespace {

using namespace baton;

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const api::Request& r) {
  const api::Sampling& s = r.sampling;
  for (const auto& number : {s.temperature, s.top_p, s.min_p, s.repetition_penalty}) require(!number || std::isfinite(*number));
  require(!s.top_p || (*s.top_p > 0 && *s.top_p <= 1));
  require(!s.top_k || *s.top_k >= 0);
  require(s.n >= 1 && s.n <= 128 && s.logprobs >= -1 && s.logprobs <= 20 && s.min_tokens >= 0);
  for (const std::string& stop : s.stop) require(!stop.empty());
  for (const std::string& field : r.ignored_fields)
    for (const char c : field) require(c > ' ' && c < 0x7F);
}

void check(const api::ChatRequest& r) {
  check(static_cast<const api::Request&>(r));
  require(!text::find_problem(r.prompt));
  require(!r.prompt.messages.as_list().items.empty());
  require(r.tools.choice != api::Tools::Choice::kNamed || !r.tools.empty());
}

template <class R>
bool taken(const api::ApiResult<R>& r) {
  if (r.ok()) return true;
  require(r.error().status / 100 == 4 && !r.error().message.empty());
  for (const auto dialect : {api::Dialect::kOpenAi, api::Dialect::kAnthropic})
    boost::json::parse(api::error_body(dialect, r.error(), "id"));
  return false;
}

// Every event of a stream is one line of JSON.
void check_stream(std::string_view stream) {
  while (!stream.empty()) {
    const size_t end = stream.find("\n\n");
    require(end != std::string_view::npos);
    const size_t data = stream.find("data: ");
    require(data < end && stream.find('\n', data) == end);
    boost::json::parse(stream.substr(data + 6, end - data - 6));
    stream.remove_prefix(end + 2);
  }
}

void write(std::string_view bytes) {
  using Kind = text::OutputEvent::Kind;
  const std::string text(bytes);
  const text::OutputEvent events[] = {{Kind::kReasoning, -1, text, {}},
                                      {Kind::kContent, -1, text, {}},
                                      {Kind::kToolStart, 0, text, {}},
                                      {Kind::kToolArguments, 0, text, {}},
                                      {Kind::kToolEnd, 0, "", {}}};
  api::TokenLogprobs token;
  token.token.bytes = text;
  token.top.push_back(token.token);
  const api::AnswerHead head{.id = text, .created = 1, .model = text, .fingerprint = text, .reasoning_field = text};
  api::ResponseHead response_head;
  response_head.id = text;
  std::string out;
  api::ChatChunkWriter chat(head, {.logprobs = true});
  chat.events(out, 0, events, {&token, 1});
  chat.finish(out, 0, {text::FinishReason::kStop, text});
  api::MessageEventWriter messages(head);
  messages.start(out, {});
  messages.events(out, events);
  messages.finish(out, {text::FinishReason::kStop, text}, {});
  api::ResponseEventWriter responses(response_head);
  responses.start(out);
  responses.events(out, events);
  responses.finish(out, {}, {});
  check_stream(out);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const bool strict : {false, true}) {
    const api::ParseLimits limits{.vocabulary = strict ? 1000 : 0, .strict = strict};
    if (const auto r = api::parse_chat(body, limits); taken(r)) check(*r);
    if (const auto r = api::parse_messages(body, limits); taken(r)) check(*r);
    if (const auto r = api::parse_count_tokens(body, limits); taken(r)) check(*r);
    if (const auto r = api::parse_responses(body, limits); taken(r)) {
      check(*r);
      require(r->echo.find('\n') == std::string::npos);
      boost::json::parse("{" + r->echo + "}");
    }
    if (const auto r = api::parse_render(body, limits); taken(r)) check(*r);
    if (const auto r = api::parse_completion(body, limits); taken(r)) {
      check(*r);
      require(!r->prompts.empty() && r->sampling.max_tokens);
    }
    if (const auto r = api::parse_generate(body, limits); taken(r)) {
      check(*r);
      require(!r->prompts.empty() && r->sampling.max_tokens);
    }
    if (const auto r = api::parse_tokenize(body, limits); taken(r)) {
      if (!r->text) check(*r);
    }
    taken(api::parse_detokenize(body, limits));
  }
  write(body);
  return 0;
}
