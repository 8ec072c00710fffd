// 'a {}'.format(values).
#include <fmt/format.h>

#include <cmath>

#include "text/template/builtins.h"
#include "text/template/number.h"
#include "text/template/text_format.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

constexpr int64_t kMostPrecision = 4000;

class BraceFormat {
 public:
  BraceFormat(RenderState& s, const Arguments& a) : s_(s), arguments_(a) {}

  // `nested`: within a format specification, where fields have none of their own.
  Text run(const Text& text, bool nested) {
    TextBuilder out(s_.meter());
    const std::string_view v = text.view();
    size_t at = 0;
    while (at < v.size() && !s_.failed()) {
      const size_t brace = std::min(v.find_first_of("{}", at), v.size());
      out.append(text, at, brace);
      at = brace;
      if (at == v.size()) break;
      if (at + 1 < v.size() && v[at + 1] == v[at] && !nested) {
        out.append(text, at, at + 1);
        at += 2;
      } else if (v[at] == '}') {
        s_.fail("Single '}' encountered in format string");
      } else {
        at = field(text, at, out, nested);
      }
    }
    return out.finish();
  }

 private:
  // A field that begins at `brace`; the byte behind it.
  size_t field(const Text& text, size_t brace, TextBuilder& out, bool nested) {
    const std::string_view v = text.view();
    size_t end = brace + 1;
    for (int open = 1; end < v.size(); ++end) {
      if (v[end] == '{') ++open;
      if (v[end] == '}' && --open == 0) break;
    }
    if (end >= v.size()) {
      s_.fail("expected '}' before end of string");
      return v.size();
    }
    size_t name_end = brace + 1;
    bool in_brackets = false;
    for (; name_end < end; ++name_end) {
      if (v[name_end] == '[') in_brackets = true;
      if (v[name_end] == ']') in_brackets = false;
      if (!in_brackets && (v[name_end] == ':' || v[name_end] == '!')) break;
    }
    Value value = look_up(v.substr(brace + 1, name_end - brace - 1));
    size_t spec_begin = name_end;
    if (spec_begin < end && v[spec_begin] == '!') {
      value = converted(value, spec_begin + 1 < end ? v[spec_begin + 1] : ' ');
      spec_begin += 2;
      if (spec_begin < end && v[spec_begin] != ':') s_.fail("expected ':' after conversion specifier");
    }
    if (spec_begin < end) ++spec_begin;
    Text spec = text.part(std::min(spec_begin, end), end);
    if (spec.view().find('{') != std::string_view::npos) {
      if (nested) s_.fail("Max string recursion exceeded");
      if (!s_.failed()) spec = run(spec, true);
    }
    if (!s_.failed()) format(value, spec, out);
    return end + 1;
  }

  Value look_up(std::string_view name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    const std::string_view first = name.substr(0, first_end);
    Value v;
    const bool number = first.find_first_not_of("0123456789") == std::string_view::npos;
    if (number) {
      if ((first.empty() ? -1 : 1) == -numbering_) return s_.fail("cannot mix automatic and manual field numbering");
      numbering_ = first.empty() ? -1 : 1;
      size_t index = next_;
      if (first.empty()) {
        ++next_;
      } else {
        index = 0;
        for (const char c : first) index = std::min<size_t>(index * 10 + static_cast<size_t>(c - '0'), 1 << 20);
      }
      if (index >= arguments_.positional.size()) return s_.fail("a format names an argument by a number that is too high");
      v = arguments_.positional[index];
    } else {
      if (!s_.take_items(arguments_.named.size())) return s_.fail("");
      for (const auto& [key, value] : arguments_.named)
        if (key.text == first) v = value;
      if (v.is_missing()) return s_.fail(fmt::format("a format names the argument '{}', which is not there", first));
    }
    for (size_t at = first_end; at < name.size() && !s_.failed();) {
      const bool attribute_part = name[at] == '.';
      const size_t end = attribute_part ? std::min(name.find_first_of(".[", at + 1), name.size()) : name.find(']', at);
      if (end == std::string_view::npos || end == at + 1) return s_.fail("a field of a format has an empty or open part");
      const std::string_view part = name.substr(at + 1, end - at - 1);
      if (attribute_part) {
        v = attribute(s_, v, part);
      } else {
        const auto index = part.find_first_not_of("0123456789") == std::string_view::npos ? parse_integer(part, 10) : std::nullopt;
        v = item(s_, v, index ? *index : s_.text(part));
      }
      at = attribute_part ? end : end + 1;
    }
    return v;
  }

  Value converted(const Value& v, char how) {
    TextBuilder out(s_.meter());
    if (how == 's')
      append_text(s_, out, v);
    else if (how == 'r')
      append_repr(s_, out, v);
    else if (how == 'a')
      append_ascii(s_, out, v);
    else
      return s_.fail("a format has an unknown conversion");
    return out.finish();
  }

  bool parse(const Text& text, FormatSpec& spec) {
    const std::string_view v = text.view();
    size_t at = 0;
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    const size_t first = v.empty() ? 0 : read_char(v.data(), v.data() + v.size()).bytes;
    if (first < v.size() && first > 0 && is_align(v[first])) {
      spec.fill = text.part(0, first);
      spec.align = v[first];
      at = first + 1;
    } else if (!v.empty() && is_align(v[0])) {
      spec.align = v[0];
      at = 1;
    }
    const auto now = [&] { return at < v.size() ? v[at] : '\0'; };
    const auto number = [&] {
      int64_t n = 0;
      for (; now() >= '0' && now() <= '9'; ++at) n = std::min<int64_t>(n * 10 + (now() - '0'), INT32_MAX);
      return n;
    };
    if (now() == '+' || now() == '-' || now() == ' ') spec.sign = v[at++];
    if (now() == '#') {
      spec.alternate = true;
      ++at;
    }
    if (now() == '0') {
      if (spec.align == 0) {
        spec.zeros = true;
        spec.fill = text.part(at, at + 1);
      }
      ++at;
    }
    spec.width = number();
    if (now() == ',' || now() == '_') spec.grouping = v[at++];
    if (now() == '.') {
      ++at;
      if (now() < '0' || now() > '9') return false;
      spec.precision = number();
    }
    if (at < v.size()) spec.type = v[at++];
    return at == v.size() && spec.precision <= kMostPrecision;
  }

  void format(const Value& v, const Text& spec_text, TextBuilder& out) {
    if (spec_text.empty()) return append_text(s_, out, v);
    FormatSpec spec;
    const bool plain = v.is_string() || (v.is_number() && !v.is(Type::kBool)) || v.is(Type::kBool);
    if (!plain || !parse(spec_text, spec)) {
      s_.fail(plain ? fmt::format("Invalid format specifier '{}'", spec_text.view())
                    : fmt::format("unsupported format string passed to {}.__format__", type_name(v)));
      return;
    }
    if (v.is_string()) {
      if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.sign != 0 || spec.grouping != 0 || spec.alternate) {
        s_.fail(fmt::format("Invalid format specifier '{}' for object of type 'str'", spec_text.view()));
        return;
      }
      Text text = v.as_text();
      if (spec.precision >= 0) text = text.part(0, char_offset(text.view(), static_cast<size_t>(spec.precision)));
      return append_padded(s_, out, text, spec, false);
    }
    if (spec.zeros) spec.align = '=';
    const bool real = v.is(Type::kFloat);
    const std::string_view types = real ? "eEfFgGn%" : "bcdoxXneEfFgG%";
    const bool float_type = std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos;
    const bool fits = spec.type == 0 || types.find(spec.type) != std::string_view::npos;
    if (!fits || (!real && !float_type && spec.precision >= 0)) {
      s_.fail(fmt::format("Unknown format code '{}' for object of type '{}'", spec.type, type_name(v)));
      return;
    }
    TextBuilder body(s_.meter());
    if (spec.type == 'c') {
      if (v.is(Type::kBigInt) || v.as_int() < 0 || v.as_int() > 0x10FFFF || (v.as_int() >= 0xD800 && v.as_int() <= 0xDFFF)) {
        s_.fail("%c arg not in range");
        return;
      }
      body.append_char(static_cast<char32_t>(v.as_int()), v.untrusted());
    } else {
      if (spec.type == 'n') spec.type = real ? 'g' : 'd';
      std::string digits = format_number(s_, v, spec);
      // Zeros before grouped digits are grouped as well.
      if (spec.grouping != 0 && spec.align == '=' && spec.fill.view() == "0") digits = zero_filled(digits, spec);
      body.append(digits, v.untrusted());
    }
    append_padded(s_, out, body.finish(), spec, true);
  }

  static std::string zero_filled(std::string digits, const FormatSpec& spec) {
    const bool hex = spec.type == 'x' || spec.type == 'X';
    const std::string_view kinds = hex ? "0123456789abcdefABCDEF" : "0123456789";
    const size_t sign = digits.find_first_of(kinds);
    if (sign == std::string::npos) return digits;
    const size_t group = hex || spec.type == 'b' || spec.type == 'o' ? 4 : 3;
    const int64_t most = std::min<int64_t>(spec.width, 4 * kMostPrecision);
    while (static_cast<int64_t>(digits.size()) < most) {
      const size_t first_separator = std::min(digits.find_first_not_of(kinds, sign), digits.size());
      if (first_separator - sign == group)
        digits.insert(sign, std::string("0") + spec.grouping);
      else
        digits.insert(sign, 1, '0');
    }
    return digits;
  }

  RenderState& s_;
  const Arguments& arguments_;
  size_t next_ = 0;
  int numbering_ = 0;  // -1 automatic, 1 by hand
};

}  // namespace

Value brace_format(RenderState& s, const Text& pattern, const Arguments& a) { return BraceFormat(s, a).run(pattern, false); }

}  // namespace baton::text::jinja
