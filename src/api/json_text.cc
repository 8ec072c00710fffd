#include "api/json_text.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "text/parse/json_check.h"
#include "text/utf8.h"

namespace baton::api {
namespace {

template <class T>
void append_chars(std::string& out, T value) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof digits, value);
  out.append(digits, end.ptr);
}

template <class T>
T finite(T value) {
  if (std::isfinite(value)) return value;
  return value > 0 ? std::numeric_limits<T>::max() : std::numeric_limits<T>::lowest();
}

}  // namespace

void append_string(std::string& out, std::string_view text) {
  out += '"';
  if (text::valid_utf8(text)) {
    text::append_json_escaped(out, text);
  } else {
    std::string repaired;
    text::append_lossy(repaired, text);
    text::append_json_escaped(out, repaired);
  }
  out += '"';
}

void append_string_or_null(std::string& out, std::string_view text) {
  if (text.empty())
    out += "null";
  else
    append_string(out, text);
}

void append_int(std::string& out, int64_t value) { append_chars(out, value); }
void append_number(std::string& out, double value) { append_chars(out, finite(value)); }
void append_number(std::string& out, float value) { append_chars(out, finite(value)); }

}  // namespace baton::api
