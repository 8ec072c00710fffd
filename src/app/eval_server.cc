// Questions answered by a server that speaks OpenAI's chat completions.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <chrono>
#include <thread>
#include <vector>

#include "app/chat_endpoint.h"
#include "app/eval_answerer.h"
#include "app/json_members.h"
#include "http/client.h"

namespace baton::app {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;
using evaluate::Outcome;
using evaluate::Question;

constexpr int kAttempts = 5;  // for a server that is full

std::string read_completion(const std::string& body, Outcome& out) {
  boost::system::error_code failed;
  const json::value value = json::parse(body, failed);
  const json::object* root = failed ? nullptr : value.if_object();
  const json::value* choices = at(root, "choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return "the answer holds no choice";
  const json::object* choice = choices->get_array().front().if_object();
  const json::object* message = object_at(choice, "message");
  if (message == nullptr) return "the answer holds no message";
  out.finish = text_at(choice, "finish_reason");
  out.answer.content = text_at(message, "content");
  out.answer.reasoning = text_at(message, "reasoning_content");
  if (out.answer.reasoning.empty()) out.answer.reasoning = text_at(message, "reasoning");
  if (const json::value* calls = at(message, "tool_calls"); calls != nullptr && calls->is_array())
    for (const json::value& c : calls->get_array()) {
      const json::object* function = object_at(c.if_object(), "function");
      out.answer.calls.push_back({text_at(function, "name"), text_at(function, "arguments")});
    }
  const json::object* usage = object_at(root, "usage");
  out.prompt_tokens = number_at(usage, "prompt_tokens");
  out.completion_tokens = number_at(usage, "completion_tokens");
  const json::object* details = object_at(usage, "completion_tokens_details");
  out.accepted_tokens = number_at(details, "accepted_prediction_tokens");
  out.drafted_tokens = out.accepted_tokens + number_at(details, "rejected_prediction_tokens");
  out.cached_tokens = number_at(object_at(usage, "prompt_tokens_details"), "cached_tokens");
  return {};
}

class ServerAnswerer final : public Answerer {
 public:
  ServerAnswerer(ServerOptions options, const AskOptions& ask) : options_(std::move(options)), ask_(ask) {}

  Status answer(std::span<const Question> questions, std::span<Outcome> outcomes, const std::function<void(int64_t)>& ended) override {
    BATON_ASSIGN(endpoint_, ChatEndpoint::at(options_.base_url, options_.api_key));
    // Also finds out whether there is a server, before hundreds of questions fail.
    const auto first = endpoint_.first_model();
    if (!first.ok() && (options_.model.empty() || first.error().kind == Error::Kind::kIo)) return first.error();
    if (options_.model.empty()) options_.model = *first;
    if (options_.model.empty())
      return Error{Error::Kind::kInvalid, fmt::format("{}/models names no model; say which with --served-model", options_.base_url)};

    std::atomic<size_t> next = 0;
    std::atomic<int64_t> done = 0;
    std::vector<std::thread> askers;
    const auto count = std::min<size_t>(static_cast<size_t>(ask_.parallel), questions.size());
    for (size_t t = 0; t < count; ++t)
      askers.emplace_back([&] {
        http::Client client(endpoint_.client_options(std::chrono::seconds(options_.timeout_s)));
        for (size_t i = next++; i < questions.size(); i = next++) {
          ask(client, questions[i], outcomes[i]);
          ++done;
        }
      });
    constexpr std::chrono::milliseconds kGlance(50);
    while (done < static_cast<int64_t>(questions.size())) {
      ended(done);
      std::this_thread::sleep_for(kGlance);
    }
    for (std::thread& t : askers) t.join();
    ended(done);
    return {};
  }

 private:
  void ask(http::Client& client, const Question& q, Outcome& out) const {
    http::ClientRequest r = endpoint_.request("/chat/completions");
    r.method = "POST";
    r.body = request_body(q, ask_, options_.model);
    for (int attempt = 1;; ++attempt) {
      const Clock::time_point start = Clock::now();
      const auto response = client.call(r);
      if (!response.ok()) {
        out.failure = response.error().message;
        return;
      }
      if ((response->status == 429 || response->status == 503) && attempt < kAttempts) {
        std::this_thread::sleep_for(std::chrono::milliseconds(250) * (1 << attempt));
        continue;
      }
      out.seconds = std::chrono::duration<double>(Clock::now() - start).count();
      out.failure = response->status == 200 ? read_completion(response->body, out) : message_of(*response);
      return;
    }
  }

  ServerOptions options_;
  AskOptions ask_;
  ChatEndpoint endpoint_;
};

}  // namespace

std::unique_ptr<Answerer> server_answerer(ServerOptions options, const AskOptions& ask) {
  return std::make_unique<ServerAnswerer>(std::move(options), ask);
}

}  // namespace baton::app
