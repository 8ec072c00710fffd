#include "load/request_body.h"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

namespace baton::load {
namespace {

namespace json = boost::json;

const char* name_of(Role role) {
  switch (role) {
    case Role::kSystem: return "system";
    case Role::kUser: return "user";
    case Role::kAssistant: return "assistant";
  }
  return "";
}

json::array messages_of(const Prompt& prompt) {
  json::array messages;
  if (prompt.stretches.empty()) messages.push_back({{"role", "user"}, {"content", prompt.text}});
  const Stretch* before = nullptr;
  for (const Stretch& s : prompt.stretches) {
    if (s.tokens == 0) continue;
    const std::string words = words_of(s);
    if (before != nullptr && before->role == s.role) {
      json::string& content = messages.back().as_object()["content"].as_string();
      content += ' ';
      content += json::string_view(words.data(), words.size());
    } else {
      messages.push_back({{"role", name_of(s.role)}, {"content", words}});
    }
    before = &s;
  }
  return messages;
}

}  // namespace

std::string body_of(const Turn& turn, const RequestOptions& o) {
  json::object body{{"model", o.model},
                    {"max_tokens", turn.output_tokens},
                    {"temperature", o.temperature},
                    {"stream", true},
                    {"stream_options", {{"include_usage", true}}}};
  if (o.ignore_eos) body["ignore_eos"] = true;
  const bool ids = o.api == Api::kCompletions && o.ids && !turn.prompt.stretches.empty();
  if (o.api == Api::kChat) body["messages"] = messages_of(turn.prompt);
  if (o.api == Api::kCompletions && !ids) body["prompt"] = text_of(turn.prompt);
  for (const auto& member : o.extra) body[member.key()] = member.value();
  std::string out = json::serialize(body);
  // Ids are written by hand: as values they would take 16 bytes each, and ten times as long.
  if (ids && !o.extra.contains("prompt")) {
    out.pop_back();
    out += fmt::format(",\"prompt\":{}}}", ids_json(turn.prompt, o.vocabulary));
  }
  return out;
}

std::string request_bytes(const Turn& turn, const RequestOptions& o) {
  const std::string body = body_of(turn, o);
  std::string out = fmt::format("POST {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: baton\r\nAccept: */*\r\n", o.target, o.host);
  for (const auto& [name, value] : o.headers) out += fmt::format("{}: {}\r\n", name, value);
  out += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.size());
  return out += body;
}

}  // namespace baton::load
