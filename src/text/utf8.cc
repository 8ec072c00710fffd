#include "text/utf8.h"

#include <cstring>

namespace baton::text {
namespace {

// The first byte that is not ASCII, or `end`.
const char* skip_ascii(const char* p, const char* end) {
  constexpr uint64_t kHigh = 0x8080808080808080;
  while (end - p >= 32) {
    uint64_t w[4];
    std::memcpy(w, p, sizeof w);
    if (((w[0] | w[1] | w[2] | w[3]) & kHigh) != 0) break;
    p += 32;
  }
  while (p < end && static_cast<uint8_t>(*p) < 0x80) ++p;
  return p;
}

}  // namespace

bool valid_utf8(std::string_view text) {
  const char* p = text.data();
  const char* const end = p + text.size();
  while ((p = skip_ascii(p, end)) < end) {
    // Runs of other scripts stay in this loop.
    do {
      const Utf8Char c = read_char(p, end);
      if (!c.valid) return false;
      p += c.bytes;
    } while (p < end && static_cast<uint8_t>(*p) >= 0x80);
  }
  return true;
}

void append_utf8(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3F));
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

void append_lossy(std::string& out, std::string_view text) {
  const char* p = text.data();
  const char* const end = p + text.size();
  const char* good = p;  // start of what has not been copied
  while ((p = skip_ascii(p, end)) < end) {
    const Utf8Char c = read_char(p, end);
    if (!c.valid) {
      out.append(good, p);
      out += kReplacementUtf8;
      good = p + c.bytes;
    }
    p += c.bytes;
  }
  out.append(good, end);
}

size_t incomplete_tail(std::string_view text) {
  // A lead byte among the last three decides.
  for (size_t n = 1; n <= 3 && n <= text.size(); ++n) {
    const char* p = text.data() + text.size() - n;
    if (is_continuation(*p)) continue;
    const Utf8Char c = read_char(p, p + n);
    return c.incomplete && c.bytes == n ? n : 0;
  }
  return 0;
}

}  // namespace baton::text
