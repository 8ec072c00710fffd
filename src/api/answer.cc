#include "api/answer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"

namespace baton::api {

using EventKind = text::OutputEvent::Kind;

void Message::add(const text::OutputEvent& event) {
  const auto grow = [&](Kind kind) {
    if (event.text.empty()) return;
    if (parts.empty() || parts.back().kind != kind) parts.push_back({kind, {}, {}});
    parts.back().text += event.text;
  };
  switch (event.kind) {
    case EventKind::kReasoning: grow(Kind::kReasoning); break;
    case EventKind::kContent: grow(Kind::kContent); break;
    case EventKind::kToolStart: parts.push_back({Kind::kCall, {}, event.text}); break;
    case EventKind::kToolArguments:
      if (!parts.empty() && parts.back().kind == Kind::kCall) parts.back().text += event.text;
      break;
    case EventKind::kToolEnd:
    case EventKind::kFinish: break;
  }
}

std::string Message::joined(Kind kind) const {
  std::string all;
  for (const Part& part : parts)
    if (part.kind == kind) all += part.text;
  return all;
}

bool Message::has(Kind kind) const {
  return std::any_of(parts.begin(), parts.end(), [&](const Part& part) { return part.kind == kind; });
}

std::string call_id(std::string_view prefix, std::string_view request_id, int32_t choice, int32_t call) {
  uint64_t hash = 0xCBF29CE484222325;  // FNV-1a
  for (const char c : request_id) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  const PhiloxBlock bits = philox(hash, {static_cast<uint32_t>(choice), static_cast<uint32_t>(call), 0, 0});
  return fmt::format("{}{:08x}{:08x}{:08x}", prefix, bits[0], bits[1], bits[2]);
}

}  // namespace baton::api
