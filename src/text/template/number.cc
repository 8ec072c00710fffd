#include "text/template/number.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include "text/template/characters.h"
#include "text/template/limits.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

// Without white space at both ends, and with ASCII digits for those of other scripts. Other characters become '?'.
std::string in_ascii(std::string_view text) {
  std::string out;
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    const char32_t c = read_valid_char(p);
    if (is_space(c))
      out += ' ';
    else if (c < 0x80)
      out += static_cast<char>(c);
    else
      out += is_decimal(c) ? static_cast<char>('0' + decimal_value(c)) : '?';
  }
  const size_t first = out.find_first_not_of(' ');
  if (first == std::string::npos) return {};
  return out.substr(first, out.find_last_not_of(' ') + 1 - first);
}

// Takes single underscores between digits away; false if they stand anywhere else.
bool drop_underscores(std::string& text) {
  const auto is_alnum_ascii = [](char c) { return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z'); };
  for (size_t i = 0; i < text.size(); ++i)
    if (text[i] == '_' && (i == 0 || i + 1 == text.size() || !is_alnum_ascii(text[i - 1]) || !is_alnum_ascii(text[i + 1]))) return false;
  text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
  return true;
}

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char low = static_cast<char>(c | 0x20);
  return low >= 'a' && low <= 'z' ? low - 'a' + 10 : 99;
}

}  // namespace

std::optional<Value> parse_integer(std::string_view text, int base) {
  if (text.size() > kMostIntegerBits) return {};
  std::string digits = in_ascii(text);
  bool negative = false;
  if (!digits.empty() && (digits[0] == '-' || digits[0] == '+')) {
    negative = digits[0] == '-';
    digits.erase(0, 1);
  }
  if (digits.size() > 2 && digits[0] == '0') {
    const char mark = static_cast<char>(digits[1] | 0x20);
    const int marked = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 0;
    if (marked != 0 && (base == 0 || base == marked)) {
      base = marked;
      digits.erase(0, digits[2] == '_' ? 3 : 2);
    }
  }
  const bool literal = base == 0;  // "012" is refused then
  if (base == 0) base = 10;
  if (base < 2 || base > 36 || digits.empty() || !drop_underscores(digits)) return {};
  if (literal && digits[0] == '0' && digits.find_first_not_of('0') != std::string::npos) return {};
  BigInt big = 0;
  uint64_t small = 0;
  const bool is_small = digits.size() <= 12;  // 36^12 < 2^63
  for (const char c : digits) {
    const int d = digit_value(c);
    if (d >= base) return {};
    if (is_small)
      small = small * static_cast<uint64_t>(base) + static_cast<uint64_t>(d);
    else
      big = big * base + d;
  }
  if (is_small) return Value::integer(negative ? -static_cast<int64_t>(small) : static_cast<int64_t>(small));
  if (big != 0 && msb(big) >= kMostIntegerBits) return {};
  return Value::integer(negative ? BigInt(-big) : big);
}

std::optional<double> parse_float(std::string_view text) {
  std::string number = in_ascii(text);
  if (number.empty() || !drop_underscores(number)) return {};
  const char* first = number.data() + (number[0] == '+' ? 1 : 0);
  const char* const last = number.data() + number.size();
  if (first < last && number[0] == '+' && *first == '-') return {};
  double d = 0;
  const auto [end, error] = std::from_chars(first, last, d);
  if (end != last || first == last) return {};
  // from_chars does not take nan(...) apart from us.
  if (std::isnan(d) && number.find('(') != std::string::npos) return {};
  if (error == std::errc::result_out_of_range) d = std::strtod(number.c_str(), nullptr);  // an infinity or a zero
  return d;
}

std::optional<Value> truncated(double d) {
  if (!std::isfinite(d)) return {};
  if (std::abs(d) < 0x1p62) return Value::integer(static_cast<int64_t>(d));
  return Value::integer(BigInt(std::trunc(d)));
}

std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific);
  const std::string_view shortest(buffer, static_cast<size_t>(end - buffer));
  const size_t e = shortest.find('e');
  const int exponent = std::atoi(std::string(shortest.substr(e + 1)).c_str());
  if (exponent < -4 || exponent >= 16) {
    // Python writes at least two digits of the exponent, as to_chars does.
    return std::string(shortest);
  }
  const auto [fixed_end, fixed_error] = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::fixed);
  std::string text(buffer, fixed_end);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string integer_digits(const Value& whole, int base) {
  const BigInt big = whole.to_big();
  const BigInt positive = abs(big);
  std::string digits;
  if (base == 10) {
    digits = positive.str();
  } else if (base == 16 || base == 8) {
    digits = positive.str(0, base == 16 ? std::ios_base::hex : std::ios_base::oct);
  } else if (positive == 0) {
    digits = "0";
  } else {
    for (int i = static_cast<int>(msb(positive)); i >= 0; --i) digits += bit_test(positive, static_cast<unsigned>(i)) ? '1' : '0';
  }
  for (char& c : digits)
    if (c >= 'A' && c <= 'F') c = static_cast<char>(c | 0x20);
  return big < 0 ? "-" + digits : digits;
}

double round_float(double d, int digits) {
  if (!std::isfinite(d) || digits > 323) return d;
  if (digits >= 0) return std::strtod(fmt::format("{:.{}f}", d, digits).c_str(), nullptr);
  if (digits < -308) return std::copysign(0.0, d);
  // To tens, hundreds and so on: by the decimal digits of the whole part, half to even as for fractions.
  const double unit = std::strtod(fmt::format("1e{}", -digits).c_str(), nullptr);
  return std::nearbyint(d / unit) * unit;
}

}  // namespace baton::text::jinja
