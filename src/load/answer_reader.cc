#include "load/answer_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json/monotonic_resource.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>

namespace baton::load {
namespace {

namespace json = boost::json;

constexpr size_t kMostErrorBytes = 4096;

const json::object* object_at(const json::object* o, const char* key) {
  const json::value* v = o != nullptr ? o->if_contains(key) : nullptr;
  return v != nullptr ? v->if_object() : nullptr;
}

int64_t count_at(const json::object* o, const char* key) {
  const json::value* v = o != nullptr ? o->if_contains(key) : nullptr;
  return v != nullptr && v->is_int64() && v->get_int64() >= 0 ? v->get_int64() : -1;
}

bool has_text(const json::object* o, const char* key) {
  const json::value* v = o != nullptr ? o->if_contains(key) : nullptr;
  return v != nullptr && ((v->is_string() && !v->get_string().empty()) || (v->is_array() && !v->get_array().empty()));
}

// Whether a choice brings anything that a model wrote: text, reasoning or a part of a call.
bool brings_text(const json::object* choice) {
  if (has_text(choice, "text")) return true;
  const json::object* delta = object_at(choice, "delta");
  return has_text(delta, "content") || has_text(delta, "reasoning_content") || has_text(delta, "reasoning") ||
         has_text(delta, "tool_calls");
}

// Of an error in OpenAI's shape, or what there is of the text.
std::string message_of(std::string_view body) {
  boost::system::error_code failed;
  const json::value value = json::parse({body.data(), body.size()}, failed);
  const json::object* root = failed ? nullptr : value.if_object();
  const json::object* error = object_at(root, "error");
  const json::value* message = error != nullptr ? error->if_contains("message") : nullptr;
  if (message == nullptr && root != nullptr) message = root->if_contains("message");
  if (message != nullptr && message->is_string()) return std::string(message->get_string());
  constexpr size_t kShown = 200;
  return std::string(body.substr(0, kShown));
}

}  // namespace

void AnswerReader::fail(std::string kind, std::string message) {
  if (failed()) return;
  record_.failure = std::move(kind);
  record_.message = std::move(message);
}

void AnswerReader::feed(int status, std::string_view bytes, double now) {
  if (failed()) return;
  if (status != 200) {
    error_body_ += bytes.substr(0, kMostErrorBytes - std::min(kMostErrorBytes, error_body_.size()));
    return;
  }
  events_.feed(bytes, [this, now](const http::Event& e) { return take(e, now); });
  if (events_.too_long()) fail("bad answer", "an event is longer than 16 MiB");
}

bool AnswerReader::take(const http::Event& event, double now) {
  if (event.data == "[DONE]") {
    done_ = true;
    return true;
  }
  std::array<unsigned char, 4096> scratch;
  json::monotonic_resource memory(scratch.data(), scratch.size());
  boost::system::error_code failed;
  const json::value value = json::parse(event.data, failed, &memory);
  const json::object* root = failed ? nullptr : value.if_object();
  if (root == nullptr) {
    fail("bad answer", "an event is not a JSON object: " + event.data.substr(0, 200));
    return false;
  }
  if (const json::value* error = root->if_contains("error"); (error != nullptr && !error->is_null()) || event.name == "error") {
    fail("error event", message_of(event.data));
    return false;
  }
  if (const json::value* choices = root->if_contains("choices"); choices != nullptr && choices->is_array()) {
    bool text = false;
    for (const json::value& c : choices->get_array()) {
      const json::object* choice = c.if_object();
      text = text || brings_text(choice);
      if (const json::value* f = choice != nullptr ? choice->if_contains("finish_reason") : nullptr; f != nullptr && f->is_string())
        record_.finish = f->get_string();
    }
    if (text) record_.chunks.push_back(now);
  }
  if (const json::object* usage = object_at(root, "usage"); usage != nullptr) {
    record_.input_tokens = count_at(usage, "prompt_tokens");
    record_.output_tokens = count_at(usage, "completion_tokens");
    record_.cached_tokens = count_at(object_at(usage, "prompt_tokens_details"), "cached_tokens");
  }
  return true;
}

void AnswerReader::end(int status) {
  if (status != 200) return fail(fmt::format("http {}", status), message_of(error_body_));
  if (events_.partial()) return fail("cut short", "the stream ended in the middle of an event");
  if (!done_ && record_.finish.empty())
    return fail("cut short", fmt::format("the stream ended after {} pieces without [DONE] or a finish_reason", record_.chunks.size()));
  if (record_.finish == "error" || record_.finish == "abort") return fail("error event", "finish_reason is \"" + record_.finish + "\"");
  if (record_.chunks.empty()) return fail("no token", "the answer is complete and holds no text");
}

}  // namespace baton::load
