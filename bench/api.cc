// bench_api: what a chunk of a stream and the body of a request cost.
//
//     build/release/bin/bench_api
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

#include "api/chat.h"
#include "api/chat_writer.h"
#include "api/completion.h"
#include "api/messages_writer.h"
#include "api/responses_writer.h"

namespace {

using namespace baton;
using Clock = std::chrono::steady_clock;

// The middle of eleven runs, in nanoseconds a call.
template <class F>
double nanoseconds(int calls, const F& f) {
  std::vector<double> times;
  for (int run = 0; run < 11; ++run) {
    const auto start = Clock::now();
    for (int i = 0; i < calls; ++i) f();
    times.push_back(std::chrono::duration<double, std::nano>(Clock::now() - start).count() / calls);
  }
  std::nth_element(times.begin(), times.begin() + 5, times.end());
  return times[5];
}

void chunks() {
  constexpr int kCalls = 200'000;
  using Kind = text::OutputEvent::Kind;
  const api::AnswerHead head{
      .id = "chatcmpl-0123456789abcdef", .created = 1764500000, .model = "glm-5.3-flash", .fingerprint = "fp_0123456789"};
  const text::OutputEvent event{Kind::kContent, -1, " something", {}};
  const api::Usage usage{.prompt = 1000, .completion = 500, .reasoning = 200, .cached = 960};
  api::TokenLogprobs token;
  token.token = {1234, -0.123456F, " something"};
  for (int i = 0; i < 5; ++i) token.top.push_back({i, -1.25F * static_cast<float>(i), " anything"});
  std::string out;
  const auto show = [](const char* what, double ns, size_t bytes) { fmt::print("{:<52}{:>9.0f} ns{:>9} bytes\n", what, ns, bytes); };
  const auto chat = [&](const char* what, const api::ChatChunkWriter::Options& options, std::span<const api::TokenLogprobs> logprobs) {
    api::ChatChunkWriter w(head, options);
    const double ns = nanoseconds(kCalls, [&] {
      out.clear();
      w.events(out, 0, {&event, 1}, logprobs, usage);
    });
    show(what, ns, out.size());
  };
  chat("chat chunk", {}, {});
  chat("chat chunk, usage in each", {.continuous_usage = true}, {});
  chat("chat chunk, log-probabilities of 5", {.logprobs = true}, {&token, 1});
  api::MessageEventWriter messages(head);
  messages.events(out, {&event, 1});
  const double message = nanoseconds(kCalls, [&] {
    out.clear();
    messages.events(out, {&event, 1});
  });
  show("event of /v1/messages", message, out.size());
  api::ResponseHead response_head;
  response_head.id = "resp_0123456789abcdef";
  api::ResponseEventWriter responses(response_head);
  responses.events(out, {&event, 1});
  const double response = nanoseconds(kCalls / 10, [&] {
    out.clear();
    responses.events(out, {&event, 1});
  });
  show("event of /v1/responses", response, out.size());
}

void bodies() {
  const auto show = [](const char* what, size_t bytes, double ns) {
    fmt::print("{:<52}{:>9.1f} us{:>9} bytes{:>8.0f} MB/s\n", what, ns * 1e-3, bytes, static_cast<double>(bytes) * 1e3 / ns);
  };
  const auto chat = [&](const char* what, int messages, const std::string& text, int calls) {
    std::string body = R"({"model":"m","messages":[)";
    for (int i = 0; i < messages; ++i) body += fmt::format(R"({}{{"role":"user","content":"{}"}})", i > 0 ? "," : "", text);
    body += R"(],"temperature":0.7,"top_p":0.95,"max_completion_tokens":1000,"stream":true,"stream_options":{"include_usage":true}})";
    if (!api::parse_chat(body, {}).ok()) std::abort();
    show(what, body.size(), nanoseconds(calls, [&] { static_cast<void>(api::parse_chat(body, {})); }));
  };
  chat("body of a chat, one short message", 1, "Hello there, how are you?", 20'000);
  chat("body of a chat, 100 messages of 2 KB", 100, std::string(2000, 'a'), 200);
  std::string ids = R"({"prompt":[1)";
  for (int i = 0; i < 100'000; ++i) ids += fmt::format(",{}", i);
  ids += "]}";
  if (!api::parse_completion(ids, {}).ok()) std::abort();
  show("body of a completion, 100,000 ids", ids.size(), nanoseconds(20, [&] { static_cast<void>(api::parse_completion(ids, {})); }));
}

}  // namespace

int main() {
  chunks();
  bodies();
  return 0;
}
