#include "text/byte_level.h"

#include "text/utf8.h"

namespace baton::text {
namespace {

constexpr char32_t kAlphabetEnd = 0x144;  // one above the alphabet's last character

constexpr bool stands_for_itself(int b) { return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF); }

constexpr std::array<char32_t, 256> make_alphabet() {
  std::array<char32_t, 256> a{};
  char32_t next = 0x100;
  for (int b = 0; b < 256; ++b) a[static_cast<size_t>(b)] = stands_for_itself(b) ? static_cast<char32_t>(b) : next++;
  return a;
}

constexpr std::array<char32_t, 256> kAlphabet = make_alphabet();

constexpr std::array<int16_t, kAlphabetEnd> make_bytes() {
  std::array<int16_t, kAlphabetEnd> bytes{};
  for (int16_t& b : bytes) b = -1;
  for (size_t b = 0; b < 256; ++b) bytes[kAlphabet[b]] = static_cast<int16_t>(b);
  return bytes;
}

constexpr std::array<int16_t, kAlphabetEnd> kBytes = make_bytes();

}  // namespace

const std::array<char32_t, 256>& byte_alphabet() { return kAlphabet; }

std::optional<std::string> token_bytes(std::string_view token) {
  std::string bytes;
  const char* p = token.data();
  const char* const end = p + token.size();
  while (p < end) {
    const Utf8Char c = read_char(p, end);
    if (!c.valid || c.code >= kAlphabetEnd || kBytes[c.code] < 0) return std::nullopt;
    bytes += static_cast<char>(kBytes[c.code]);
    p += c.bytes;
  }
  return bytes;
}

std::string byte_level_text(std::string_view bytes) {
  std::string text;
  for (const char b : bytes) append_utf8(text, kAlphabet[static_cast<uint8_t>(b)]);
  return text;
}

}  // namespace baton::text
