// The markup of GLM's output: which token ids, or which stretches of text, are markers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace baton::text {

class Tokenizer;

enum class Marker : uint8_t { kThink, kThinkEnd, kToolCall, kToolCallEnd, kArgKey, kArgKeyEnd, kArgValue, kArgValueEnd };
inline constexpr int kMarkerCount = 8;

std::string_view spelling(Marker marker);

// How markers reach the parser. Where a tokenizer has a token for a marker, only that token is the marker, and text of other tokens that
// reads the same is text. A marker without a token is looked for in text.
class OutputMarkup {
 public:
  // Without a tokenizer: every marker is looked for in text.
  OutputMarkup() { ids_.fill(-1); }
  explicit OutputMarkup(const Tokenizer& tokenizer);

  std::optional<Marker> marker(int32_t id) const;
  // -1 where the tokenizer has no token for it.
  int32_t id(Marker marker) const { return ids_[static_cast<size_t>(marker)]; }
  // Whether the marker is looked for in text.
  bool in_text(Marker marker) const { return id(marker) < 0; }

  // Whether output that follows this prompt begins inside a think block: the prompt opened one in its last message and did not close it.
  bool opens_reasoning(std::span<const int32_t> prompt, const Tokenizer& tokenizer) const;

 private:
  std::array<int32_t, kMarkerCount> ids_{};
};

// The same for a prompt that is only known as text.
bool opens_reasoning(std::string_view prompt);

// Finds markers in text that arrives in pieces. Holds back what may still become a marker, 11 bytes at most.
class MarkerScanner {
 public:
  explicit MarkerScanner(const OutputMarkup& markup);

  // Calls on_text(std::string_view) and on_marker(Marker) in order.
  template <class OnText, class OnMarker>
  void add(std::string_view text, const OnText& on_text, const OnMarker& on_marker) {
    if (nothing_) {
      if (!text.empty()) on_text(text);
      return;
    }
    size_t begin = 0;  // of the text not handed on yet
    for (size_t at = 0; at < text.size();) {
      if (held_.empty()) {
        at = text.find('<', begin);
        if (at == std::string_view::npos) break;
        if (at > begin) on_text(text.substr(begin, at - begin));
        held_ = '<';
        begin = ++at;
        continue;
      }
      // No marker has a second '<', so what cannot go on was text as a whole, and the next marker begins with this character or later.
      const auto next = grow(text[at]);
      if (next == Growth::kNone) {
        on_text(std::string_view(held_));
        held_.clear();
        begin = at;
        continue;
      }
      begin = ++at;
      if (next == Growth::kWhole) {
        held_.clear();
        on_marker(found_);
      }
    }
    if (held_.empty() && begin < text.size()) on_text(text.substr(begin));
  }

  // At the end, and before what interrupts text: hands on what was held back.
  template <class OnText>
  void flush(const OnText& on_text) {
    if (held_.empty()) return;
    const std::string text = std::move(held_);
    held_.clear();
    on_text(std::string_view(text));
  }

 private:
  enum class Growth { kNone, kPart, kWhole };
  Growth grow(char c);

  std::array<bool, kMarkerCount> looked_for_{};
  bool nothing_ = true;
  std::string held_;
  Marker found_{};
};

}  // namespace baton::text
