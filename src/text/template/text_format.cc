#include "text/template/text_format.h"

#include <fmt/format.h>

#include <cmath>

#include "text/template/builtins.h"
#include "text/template/number.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

constexpr int64_t kMostPrecision = 4000;

void upper_ascii(std::string& text) {
  for (char& c : text)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 32);
}

// Commas or underscores between groups of `size` digits of the whole part.
std::string grouped(const std::string& digits, char separator, size_t size) {
  const size_t whole = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % size == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(whole);
}

// The digits of |d|.
std::string float_digits(double d, const FormatSpec& spec) {
  const double x = std::abs(d);
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return "inf";
  const int precision = static_cast<int>(spec.precision < 0 ? 6 : spec.precision);
  switch (spec.type) {
    case 'f':
    case 'F': return fmt::format(fmt::runtime(spec.alternate ? "{:#.{}f}" : "{:.{}f}"), x, precision);
    case 'e':
    case 'E': return fmt::format(fmt::runtime(spec.alternate ? "{:#.{}e}" : "{:.{}e}"), x, precision);
    case 'g':
    case 'G': return fmt::format(fmt::runtime(spec.alternate ? "{:#.{}g}" : "{:.{}g}"), x, precision == 0 ? 1 : precision);
    case '%': return fmt::format("{:.{}f}%", x * 100, precision);
    default: break;
  }
  if (spec.precision < 0) return float_repr(x);
  // Like g, but fixed numbers keep one digit behind the point, and the exponent begins one digit earlier.
  std::string text = fmt::format("{:.{}g}", x, precision == 0 ? 1 : precision);
  const int exponent = x == 0 ? 0 : static_cast<int>(std::floor(std::log10(x)));
  if (text.find('e') == std::string::npos && exponent == precision - 1 && precision > 0 && x != 0 && text.find('.') == std::string::npos) {
    std::string e = fmt::format("{:.{}e}", x, precision - 1);
    const size_t mark = e.find('e');
    std::string mantissa = e.substr(0, mark);
    if (mantissa.find('.') != std::string::npos) {
      mantissa.erase(mantissa.find_last_not_of('0') + 1);
      if (mantissa.back() == '.') mantissa.pop_back();
    }
    return mantissa + e.substr(mark);
  }
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::string format_number(RenderState& s, const Value& number, const FormatSpec& spec) {
  const bool as_float = number.is(Type::kFloat) || std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
  std::string digits, prefix;
  bool negative = false;
  size_t group = 3;
  if (as_float && spec.type != 'd') {
    s.take_items(static_cast<size_t>(std::max<int64_t>(0, spec.precision)) * 4);
    const double d = number.to_float();
    negative = std::signbit(d) && !std::isnan(d);
    digits = float_digits(d, spec);
  } else {
    const int base = spec.type == 'b' ? 2 : spec.type == 'o' ? 8 : (spec.type | 0x20) == 'x' ? 16 : 10;
    if (base != 10) group = 4;
    s.take_items(number.is(Type::kBigInt) ? msb(abs(number.as_big())) / 4 : 1);
    digits = integer_digits(number, base);
    negative = digits[0] == '-';
    if (negative) digits.erase(0, 1);
    if (spec.alternate && base != 10) prefix = std::string("0") + (base == 2 ? 'b' : base == 8 ? 'o' : 'x');
  }
  if (spec.grouping != 0) digits = grouped(digits, spec.grouping, group);
  std::string out = prefix + digits;
  if (spec.type == 'X' || spec.type == 'E' || spec.type == 'G' || spec.type == 'F') upper_ascii(out);
  return (negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "") + out;
}

void append_padded(RenderState& s, TextBuilder& out, const Text& body, const FormatSpec& spec, bool numeric) {
  const auto have = static_cast<int64_t>(count_chars(body.view()));
  const auto missing = static_cast<size_t>(std::max<int64_t>(0, spec.width - have));
  if (missing > s.meter().limits().live_bytes) s.meter().take_bytes(SIZE_MAX);
  const char align = spec.align != 0 ? spec.align : numeric ? '>' : '<';
  const size_t before = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  const auto pad = [&](size_t n) {
    for (size_t i = 0; i < n && s.take_items(1); ++i) out.append(spec.fill);
  };
  if (align == '=') {
    // Behind the sign and a prefix such as 0x.
    const std::string_view v = body.view();
    size_t front = !v.empty() && (v[0] == '-' || v[0] == '+' || v[0] == ' ') ? 1 : 0;
    if (v.size() > front + 1 && v[front] == '0' && std::string_view("xXobB").find(v[front + 1]) != std::string_view::npos) front += 2;
    out.append(body, 0, front);
    pad(missing);
    out.append(body, front, body.size());
    return;
  }
  pad(before);
  out.append(body);
  pad(missing - before);
}

namespace {

// One run over the pattern of `%`.
class PercentFormat {
 public:
  PercentFormat(RenderState& s, const Text& pattern, const Value& values)
      : s_(s), text_(pattern), view_(text_.view()), values_(values), out_(s.meter()) {}

  Value run() {
    size_t copied = 0;
    while (!s_.failed()) {
      const size_t mark = view_.find('%', at_);
      if (mark == std::string_view::npos) break;
      out_.append(text_, copied, mark);
      at_ = mark + 1;
      one(mark);
      copied = at_;
    }
    out_.append(text_, copied, view_.size());
    const bool tuple = values_.is(Type::kList) && values_.as_list().is_tuple();
    const size_t given = tuple ? values_.as_list().items.size() : 1;
    const bool may_stay = values_.is(Type::kDict) || values_.is_undefined() || (values_.is(Type::kList) && !tuple);
    if (!s_.failed() && next_ < given && !may_stay && !by_name_) return s_.fail("not all arguments converted during string formatting");
    return out_.finish();
  }

 private:
  char now() const { return at_ < view_.size() ? view_[at_] : '\0'; }

  Value take() {
    if (values_.is(Type::kList) && values_.as_list().is_tuple()) {
      if (next_ < values_.as_list().items.size()) return values_.as_list().items[next_++];
    } else if (next_ == 0) {
      ++next_;
      return values_;
    }
    return s_.fail("not enough arguments for format string");
  }

  int64_t number_or_star() {
    if (now() == '*') {
      ++at_;
      const Value v = take();
      if (!v.is(Type::kInt)) s_.fail("* wants int");
      return v.is(Type::kInt) ? v.as_int() : 0;
    }
    int64_t n = 0;
    for (; now() >= '0' && now() <= '9'; ++at_) n = std::min<int64_t>(n * 10 + (now() - '0'), INT32_MAX);
    return n;
  }

  void one(size_t mark) {
    Value named;
    if (now() == '(') {
      const size_t end = view_.find(')', at_);
      if (end == std::string_view::npos || !values_.is(Type::kDict)) {
        s_.fail("format requires a mapping");
        return;
      }
      const Value* found = values_.as_dict().find(view_.substr(at_ + 1, end - at_ - 1));
      if (found == nullptr) {
        s_.fail(fmt::format("a format names the key '{}', which is not there", view_.substr(at_ + 1, end - at_ - 1)));
        return;
      }
      named = *found;
      by_name_ = true;
      at_ = end + 1;
    }
    FormatSpec spec;
    bool zero = false;
    for (bool flags = true; flags;) {
      switch (now()) {
        case '-': spec.align = '<'; break;
        case '+': spec.sign = '+'; break;
        case ' ': spec.sign = spec.sign == '+' ? '+' : ' '; break;
        case '#': spec.alternate = true; break;
        case '0': zero = true; break;
        default: flags = false;
      }
      if (flags) ++at_;
    }
    spec.width = number_or_star();
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (now() == '.') {
      ++at_;
      spec.precision = std::max<int64_t>(0, number_or_star());
    }
    while (now() == 'l' || now() == 'h' || now() == 'L') ++at_;
    spec.type = now();
    if (at_ >= view_.size()) {
      s_.fail("incomplete format");
      return;
    }
    ++at_;
    if (spec.type == '%') return out_.append(text_, mark, mark + 1);
    convert(named.is_missing() ? take() : named, spec, zero, text_.untrusted_at(mark));
  }

  void convert(const Value& v, FormatSpec spec, bool zero, bool pattern_untrusted) {
    if (s_.failed()) return;
    if (spec.precision > kMostPrecision) {
      s_.fail("the precision of a format is too large");
      return;
    }
    TextBuilder body(s_.meter());
    bool numeric = true;
    switch (spec.type) {
      case 's':
      case 'r':
      case 'a':
        numeric = false;
        if (spec.type == 's')
          append_text(s_, body, v);
        else if (spec.type == 'r')
          append_repr(s_, body, v);
        else
          append_ascii(s_, body, v);
        break;
      case 'c':
        numeric = false;
        append_character(v, body);
        break;
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': append_number(v, spec, body, pattern_untrusted); break;
      default: s_.fail(fmt::format("unsupported format character '{}'", spec.type)); return;
    }
    Text text = body.finish();
    if (!numeric && spec.type != 'c' && spec.precision >= 0)
      text = text.part(0, char_offset(text.view(), static_cast<size_t>(spec.precision)));
    if (spec.align == 0) {
      spec.align = '>';
      if (zero && numeric) {
        spec.align = '=';
        spec.fill = Text::of("0", pattern_untrusted);
      }
    }
    append_padded(s_, out_, text, spec, numeric);
  }

  void append_character(const Value& v, TextBuilder& body) {
    if (v.is_string() && count_chars(v.view()) == 1) return body.append(v.as_text());
    if ((v.is(Type::kInt) || v.is(Type::kBool)) && v.as_int() >= 0 && v.as_int() <= 0x10FFFF &&
        (v.as_int() < 0xD800 || v.as_int() > 0xDFFF))
      return body.append_char(static_cast<char32_t>(v.as_int()), v.untrusted());
    s_.fail("%c requires an int or a character");
  }

  void append_number(Value v, FormatSpec spec, TextBuilder& body, bool pattern_untrusted) {
    if (!v.is_number()) {
      s_.fail(fmt::format("%{} format: a number is required, not {}", spec.type, type_name(v)));
      return;
    }
    const bool untrusted = v.untrusted() || pattern_untrusted;
    const bool whole = std::string_view("diuoxX").find(spec.type) != std::string_view::npos;
    if (whole && v.is(Type::kFloat)) {
      const auto i = truncated(v.as_float());
      if (!i || (spec.type | 0x20) == 'x' || spec.type == 'o') {
        s_.fail(fmt::format("%{} format: an integer is required", spec.type));
        return;
      }
      v = *i;
    }
    if (whole && (spec.type == 'i' || spec.type == 'u')) spec.type = 'd';
    std::string text = format_number(s_, v, spec);
    if (whole && spec.precision >= 0) {
      // At least so many digits.
      const size_t sign = text.find_first_of("0123456789abcdefABCDEF");
      const auto digits = static_cast<int64_t>(text.size() - sign);
      if (digits < spec.precision) text.insert(sign, static_cast<size_t>(spec.precision - digits), '0');
    }
    body.append(text, untrusted);
  }

  RenderState& s_;
  const Text text_;
  const std::string_view view_;
  const Value& values_;
  TextBuilder out_;
  size_t at_ = 0, next_ = 0;
  bool by_name_ = false;
};

}  // namespace

Value percent_format(RenderState& s, const Value& pattern, const Value& values) {
  return PercentFormat(s, pattern.as_text(), values).run();
}

}  // namespace baton::text::jinja
