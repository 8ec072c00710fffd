// UTF-8: one character at a time, validation, and U+FFFD for each maximal broken part (the WHATWG rule).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace baton::text {

constexpr char32_t kReplacement = 0xFFFD;
constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

struct Utf8Char {
  char32_t code = kReplacement;
  uint32_t bytes = 1;       // of the character, or of the broken part; at least 1
  bool valid = false;       // code is kReplacement when not
  bool incomplete = false;  // not valid, but only because the text ends
};

// The character at `p`; p < end.
inline Utf8Char read_char(const char* p, const char* end) {
  const auto byte = [&](int i) { return static_cast<uint8_t>(p[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, true, false};
  if (lead < 0xC2 || lead > 0xF4) return {};
  const int wanted = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  // The second byte is bounded more tightly after some leads: no overlong forms, no surrogates, nothing beyond U+10FFFF.
  const uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  char32_t code = lead & (0x7F >> wanted);
  for (int i = 1; i < wanted; ++i) {
    if (p + i == end) return {kReplacement, static_cast<uint32_t>(i), false, true};
    const uint8_t b = byte(i);
    if (b < (i == 1 ? low : 0x80) || b > (i == 1 ? high : 0xBF)) return {kReplacement, static_cast<uint32_t>(i), false, false};
    code = code << 6 | (b & 0x3F);
  }
  return {code, static_cast<uint32_t>(wanted), true, false};
}

// The character at `p` of text that is known to be valid; faster.
inline char32_t read_valid_char(const char*& p) {
  const auto byte = [&](int i) { return static_cast<char32_t>(static_cast<uint8_t>(p[i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) {
    p += 1;
    return lead;
  }
  if (lead < 0xE0) {
    const char32_t code = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
    p += 2;
    return code;
  }
  if (lead < 0xF0) {
    const char32_t code = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    p += 3;
    return code;
  }
  const char32_t code = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  p += 4;
  return code;
}

inline bool is_continuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

bool valid_utf8(std::string_view text);
void append_utf8(std::string& out, char32_t code);
// `text` with every maximal broken part replaced.
void append_lossy(std::string& out, std::string_view text);
// How many bytes at the end are the beginning of a character that more bytes may complete; 0 to 3.
size_t incomplete_tail(std::string_view text);

}  // namespace baton::text
