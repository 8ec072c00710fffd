#include "app/chat_client.h"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <chrono>

#include "app/json_members.h"
#include "http/event_reader.h"

namespace baton::app {
namespace {

namespace json = boost::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kSilence(10);  // a server may think, and queue, for long

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

json::object message(std::string_view role, const std::string& content) { return {{"role", role}, {"content", content}}; }

// One chunk of a stream: what it adds to the answer. False for an error, which is in `failure` then.
bool take(const json::object& chunk, ChatAnswer& answer, std::string& failure, const std::function<void(const ChatPiece&)>& on_piece) {
  if (const json::object* error = object_at(&chunk, "error")) {
    failure = text_at(error, "message");
    return false;
  }
  if (const json::object* usage = object_at(&chunk, "usage")) {
    answer.prompt_tokens = number_at(usage, "prompt_tokens");
    answer.completion_tokens = number_at(usage, "completion_tokens");
    answer.cached_tokens = number_at(object_at(usage, "prompt_tokens_details"), "cached_tokens");
  }
  const json::object* choice = first_at(&chunk, "choices");
  if (const std::string finish = text_at(choice, "finish_reason"); !finish.empty()) answer.finish = finish;
  const json::object* delta = object_at(choice, "delta");
  for (const char* field : {"reasoning_content", "reasoning", "content"}) {
    const std::string text = text_at(delta, field);
    if (text.empty()) continue;
    const bool reasoning = std::string_view(field) != "content";
    (reasoning ? answer.reasoning : answer.content) += text;
    on_piece({reasoning, text});
  }
  return true;
}

}  // namespace

ChatClient::ChatClient(ChatEndpoint endpoint, std::string model)
    : endpoint_(std::move(endpoint)), model_(std::move(model)), client_(endpoint_.client_options(kSilence)) {}

json::array ChatClient::messages() const {
  json::array out;
  if (!system_.empty()) out.push_back(message("system", system_));
  for (const Said& s : said_) {
    out.push_back(message("user", s.question));
    out.push_back(message("assistant", s.answer));
  }
  return out;
}

std::string ChatClient::take_back() {
  if (said_.empty()) return {};
  std::string question = std::move(said_.back().question);
  said_.pop_back();
  return question;
}

Result<ChatAnswer> ChatClient::ask(const std::string& question, const std::function<void(const ChatPiece&)>& on_piece,
                                   const std::function<bool()>& keep_going) {
  json::object body = fields_;
  if (!model_.empty()) body["model"] = model_;
  json::array all = messages();
  all.push_back(message("user", question));
  body["messages"] = std::move(all);
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  http::ClientRequest request = endpoint_.request("/chat/completions");
  request.method = "POST";
  request.body = json::serialize(body);
  request.keep_going = keep_going;

  ChatAnswer answer;
  std::string failure;
  bool done = false;
  const Clock::time_point begin = Clock::now();
  http::EventReader events;
  const auto on_event = [&](const http::Event& event) {
    if (event.data == "[DONE]") {
      done = true;
      return true;
    }
    boost::system::error_code failed;
    const json::value chunk = json::parse(event.data, failed);
    if (failed || !chunk.is_object()) {
      failure = "an event of the answer is not JSON";
      return false;
    }
    return take(chunk.get_object(), answer, failure, [&](const ChatPiece& piece) {
      if (answer.first_s == 0) answer.first_s = seconds_since(begin);
      on_piece(piece);
    });
  };
  const auto response = client_.stream(request, [&](std::string_view bytes) { return keep_going() && events.feed(bytes, on_event); });
  answer.seconds = seconds_since(begin);
  const bool stopped = !done && failure.empty() && !keep_going();
  if (!stopped) {
    if (!failure.empty()) return Error{Error::Kind::kIo, fmt::format("{}: {}", endpoint_.shown(), failure)};
    if (!response.ok()) return Error{Error::Kind::kIo, fmt::format("{}: {}", endpoint_.shown(), response.error().message)};
    if (response->status / 100 != 2) return Error{Error::Kind::kIo, fmt::format("{}: {}", endpoint_.shown(), message_of(*response))};
    if (!done) return Error{Error::Kind::kIo, fmt::format("{}: the answer broke off", endpoint_.shown())};
  } else {
    answer.finish = "stopped";
  }
  if (!answer.content.empty()) said_.push_back({question, answer.content});
  return answer;
}

std::string ChatClient::text() const { return json::serialize(json::object{{"messages", messages()}}) + "\n"; }

Status ChatClient::read(std::string_view text, const std::string& name) {
  const auto wrong = [&](std::string_view what) { return Error{Error::Kind::kInvalid, fmt::format("{}: {}", name, what)}; };
  boost::system::error_code failed;
  const json::value body = json::parse(json::string_view(text.data(), text.size()), failed);
  const json::value* list = failed ? nullptr : at(body.if_object(), "messages");
  if (list == nullptr || !list->is_array()) return wrong("is not a conversation; /save writes {\"messages\": [...]}");
  std::string system;
  std::vector<Said> said;
  bool asked = false;
  for (const json::value& m : list->get_array()) {
    const std::string role = text_at(m.if_object(), "role"), content = text_at(m.if_object(), "content");
    if (role == "system" && said.empty() && system.empty())
      system = content;
    else if (role == "user" && !asked)
      said.push_back({content, {}});
    else if (role == "assistant" && asked)
      said.back().answer = content;
    else
      return wrong(fmt::format("a message of '{}' stands where it cannot; questions and answers take turns", role));
    asked = role == "user";
  }
  if (asked) said.pop_back();  // a question that was never answered
  system_ = std::move(system);
  said_ = std::move(said);
  return {};
}

}  // namespace baton::app
