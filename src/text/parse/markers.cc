#include "text/parse/markers.h"

#include "text/tokenizer.h"

namespace baton::text {
namespace {

constexpr std::array<std::string_view, kMarkerCount> kSpellings = {"<think>",   "</think>",   "<tool_call>", "</tool_call>",
                                                                   "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};
constexpr std::string_view kAssistant = "<|assistant|>";

Marker marker_at(size_t i) { return static_cast<Marker>(i); }

}  // namespace

std::string_view spelling(Marker marker) { return kSpellings[static_cast<size_t>(marker)]; }

OutputMarkup::OutputMarkup(const Tokenizer& tokenizer) : OutputMarkup() {
  for (size_t i = 0; i < kSpellings.size(); ++i) {
    const auto id = tokenizer.id_of(kSpellings[i]);
    if (id.has_value() && tokenizer.is_added(*id)) ids_[i] = *id;
  }
}

std::optional<Marker> OutputMarkup::marker(int32_t id) const {
  if (id < 0) return std::nullopt;
  for (size_t i = 0; i < ids_.size(); ++i)
    if (ids_[i] == id) return marker_at(i);
  return std::nullopt;
}

bool OutputMarkup::opens_reasoning(std::span<const int32_t> prompt, const Tokenizer& tokenizer) const {
  if (in_text(Marker::kThink) || in_text(Marker::kThinkEnd)) return text::opens_reasoning(tokenizer.decode(prompt));
  for (size_t i = prompt.size(); i-- > 0;) {
    if (prompt[i] == id(Marker::kThink)) return true;
    // A role token begins the message: what stands before it is another one's.
    if (prompt[i] == id(Marker::kThinkEnd) || tokenizer.is_special(prompt[i])) return false;
  }
  return false;
}

bool opens_reasoning(std::string_view prompt) {
  if (const size_t role = prompt.rfind(kAssistant); role != std::string_view::npos) prompt.remove_prefix(role);
  const size_t open = prompt.rfind(spelling(Marker::kThink)), close = prompt.rfind(spelling(Marker::kThinkEnd));
  return open != std::string_view::npos && (close == std::string_view::npos || close < open);
}

MarkerScanner::MarkerScanner(const OutputMarkup& markup) {
  for (size_t i = 0; i < kSpellings.size(); ++i) {
    looked_for_[i] = markup.in_text(marker_at(i));
    nothing_ = nothing_ && !looked_for_[i];
  }
}

MarkerScanner::Growth MarkerScanner::grow(char c) {
  held_ += c;
  Growth growth = Growth::kNone;
  for (size_t i = 0; i < kSpellings.size() && growth != Growth::kWhole; ++i) {
    if (!looked_for_[i] || !kSpellings[i].starts_with(held_)) continue;
    growth = kSpellings[i].size() == held_.size() ? Growth::kWhole : Growth::kPart;
    found_ = marker_at(i);
  }
  if (growth == Growth::kNone) held_.pop_back();
  return growth;
}

}  // namespace baton::text
