// The methods of str.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/template/builtins.h"
#include "text/template/characters.h"
#include "text/template/html_escape.h"
#include "text/template/methods.h"
#include "text/template/text_case.h"
#include "text/template/text_format.h"
#include "text/template/text_search.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

constexpr auto kNone = std::string_view::npos;

struct Char {
  char32_t code;
  size_t begin, end;  // bytes
};

// All characters, each with the bytes that it takes.
std::vector<Char> chars_of(RenderState& s, std::string_view text) {
  std::vector<Char> chars;
  if (!s.take_items(text.size() / 8)) return chars;
  for (const char *p = text.data(), *const end = p + text.size(); p < end;) {
    const auto begin = static_cast<size_t>(p - text.data());
    const char32_t c = read_valid_char(p);
    chars.push_back({c, begin, static_cast<size_t>(p - text.data())});
  }
  return chars;
}

// The part of `text` in [from, to) as Python slices it, in bytes; false if it is empty because it lies outside.
bool window(RenderState& s, std::string_view text, const Value& from, const Value& to, size_t& begin, size_t& end) {
  begin = 0;
  end = text.size();
  if ((from.is_missing() || from.is_none()) && (to.is_missing() || to.is_none())) return true;
  s.meter().take_steps(static_cast<int64_t>(text.size() / 32));
  const auto size = static_cast<int64_t>(count_chars(text));
  const auto place = [&](const Value& v, int64_t otherwise) {
    if (v.is_missing() || v.is_none()) return otherwise;
    if (!v.is(Type::kInt) && !v.is(Type::kBool)) {
      s.fail("slice indices must be integers or None");
      return otherwise;
    }
    const int64_t i = v.as_int();
    return i < 0 ? std::max<int64_t>(0, i + size) : i;
  };
  const int64_t first = place(from, 0), last = std::min(size, place(to, size));
  if (first > last) return false;
  begin = char_offset(text, static_cast<size_t>(first));
  end = char_offset(text, static_cast<size_t>(last));
  return true;
}

// What a method needs as text.
bool need_text(RenderState& s, std::string_view method, const Value& v) {
  if (v.is_string()) return true;
  s.fail(fmt::format("{}() needs text, not {}", method, type_name(v)));
  return false;
}

int64_t integer_or(RenderState& s, std::string_view method, const Value& v, int64_t otherwise) {
  if (v.is_missing()) return otherwise;
  if (v.is(Type::kInt) || v.is(Type::kBool)) return v.as_int();
  s.fail(fmt::format("{}() needs a whole number, not {}", method, type_name(v)));
  return otherwise;
}

size_t rfind_text(RenderState& s, std::string_view text, std::string_view what) {
  // Every place is compared, which takes as many steps as that may cost.
  if (what.size() > text.size()) return kNone;
  for (size_t at = text.size() - what.size() + 1; at-- > 0;) {
    if (!what.empty() && text[at] != what[0]) continue;
    if (text.substr(at, what.size()) == what) return at;
    if (what.size() > 64 && !s.take_items(what.size() / 8)) return kNone;
  }
  return kNone;
}

Value find(RenderState& s, const Text& text, std::string_view name, const Arguments& a) {
  constexpr std::array<std::string_view, 3> kNames = {"sub", "start", "end"};
  const auto b = bind_arguments(s, name, a, kNames, 1);
  if (s.failed() || !need_text(s, name, b[0])) return Value::undefined("");
  const std::string_view v = text.view(), what = b[0].view();
  s.meter().take_steps(static_cast<int64_t>(v.size() / 32));
  size_t begin = 0, end = 0;
  const bool inside = window(s, v, b[1], b[2], begin, end);
  if (name == "count") {
    int64_t n = 0;
    if (inside && what.empty()) n = static_cast<int64_t>(count_chars(v.substr(begin, end - begin))) + 1;
    const std::string_view part = v.substr(0, end);
    for (size_t at = begin; inside && !what.empty() && (at = find_text(part, what, at)) != kNone; at += what.size()) ++n;
    return Value::integer(n);
  }
  size_t at = kNone;
  if (inside) {
    at = name[0] == 'r' ? rfind_text(s, v.substr(begin, end - begin), what) : find_text(v.substr(0, end), what, begin);
    if (at != kNone && name[0] == 'r') at += begin;
  }
  if (at != kNone) return Value::integer(static_cast<int64_t>(count_chars(v.substr(0, at))));
  if (name == "index" || name == "rindex") return s.fail("substring not found");
  return Value::integer(-1);
}

Value starts_or_ends(RenderState& s, const Text& text, std::string_view name, const Arguments& a) {
  constexpr std::array<std::string_view, 3> kNames = {"prefix", "start", "end"};
  const auto b = bind_arguments(s, name, a, kNames, 1);
  if (s.failed()) return b[0];
  size_t begin = 0, end = 0;
  const bool inside = window(s, text.view(), b[1], b[2], begin, end);
  const std::string_view part = inside ? text.view().substr(begin, end - begin) : std::string_view();
  const auto fits = [&](const Value& v) {
    if (!need_text(s, name, v) || !inside) return false;
    return name == "startswith" ? part.starts_with(v.view()) : part.ends_with(v.view());
  };
  if (!b[0].is(Type::kList) || !b[0].as_list().is_tuple()) return Value::boolean(fits(b[0]));
  const auto& all = b[0].as_list().items;
  return Value::boolean(std::any_of(all.begin(), all.end(), fits));
}

std::vector<Value> split_at_space(RenderState& s, const Text& text, int64_t most, bool from_right) {
  const std::string_view v = text.view();
  const std::vector<Char> chars = chars_of(s, v);
  std::vector<Value> parts;
  const size_t n = chars.size();
  const auto space = [&](size_t i) { return is_space(chars[from_right ? n - 1 - i : i].code); };
  const auto piece = [&](size_t from, size_t to) {  // characters, counted from the side where splitting begins
    if (from_right) return text.part(chars[n - to].begin, chars[n - 1 - from].end);
    return text.part(chars[from].begin, chars[to - 1].end);
  };
  size_t i = 0;
  while (s.take_items(4)) {
    while (i < n && space(i)) ++i;
    if (i == n) break;
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.emplace_back(piece(i, n));  // the rest, with the white space at its far end
      break;
    }
    const size_t begin = i;
    while (i < n && !space(i)) ++i;
    parts.emplace_back(piece(begin, i));
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Value split(RenderState& s, const Text& text, std::string_view name, const Arguments& a) {
  constexpr std::array<std::string_view, 2> kNames = {"sep", "maxsplit"};
  const auto b = bind_arguments(s, name, a, kNames, 0);
  const int64_t most = integer_or(s, name, b[1], -1);
  if (s.failed()) return b[0];
  const bool from_right = name == "rsplit";
  if (b[0].is_missing() || b[0].is_none()) return s.list(split_at_space(s, text, most, from_right));
  if (!need_text(s, name, b[0])) return b[0];
  const std::string_view v = text.view(), separator = b[0].view();
  if (separator.empty()) return s.fail("empty separator");
  std::vector<Value> parts;
  s.meter().take_steps(static_cast<int64_t>(v.size() / 32));
  const auto more = [&] { return (most < 0 || static_cast<int64_t>(parts.size()) < most) && s.room_for(1); };
  if (from_right) {
    size_t end = v.size();
    for (size_t at = 0; more() && (at = rfind_text(s, v.substr(0, end), separator)) != kNone; end = at)
      parts.emplace_back(text.part(at + separator.size(), end));
    parts.emplace_back(text.part(0, end));
    std::reverse(parts.begin(), parts.end());
  } else {
    size_t begin = 0;
    for (size_t at = 0; more() && (at = find_text(v, separator, begin)) != kNone; begin = at + separator.size())
      parts.emplace_back(text.part(begin, at));
    parts.emplace_back(text.part(begin, v.size()));
  }
  return s.list(std::move(parts));
}

Value partition(RenderState& s, const Text& text, std::string_view name, const Arguments& a) {
  constexpr std::array<std::string_view, 1> kNames = {"sep"};
  const auto b = bind_arguments(s, name, a, kNames, 1);
  if (s.failed() || !need_text(s, name, b[0])) return b[0];
  const std::string_view v = text.view(), separator = b[0].view();
  if (separator.empty()) return s.fail("empty separator");
  const bool right = name == "rpartition";
  const size_t at = right ? rfind_text(s, v, separator) : find_text(v, separator, 0);
  const Value whole = text, none = s.text("");
  if (at == kNone)
    return s.list(right ? std::vector<Value>{none, none, whole} : std::vector<Value>{whole, none, none}, List::Flavour::kTuple);
  return s.list({text.part(0, at), text.part(at, at + separator.size()), text.part(at + separator.size(), v.size())},
                List::Flavour::kTuple);
}

Value aligned(RenderState& s, const Text& text, std::string_view name, const Arguments& a) {
  constexpr std::array<std::string_view, 2> kNames = {"width", "fillchar"};
  const auto b = bind_arguments(s, name, a, kNames, 1);
  const int64_t width = integer_or(s, name, b[0], 0);
  if (s.failed()) return b[0];
  Text fill = Text::of(" ");
  if (!b[1].is_missing()) {
    if (!need_text(s, name, b[1])) return b[1];
    if (count_chars(b[1].view()) != 1) return s.fail("The fill character must be exactly one character long");
    fill = b[1].as_text();
  }
  if (name == "center") return centered(s, text, width, fill);
  TextBuilder out(s.meter());
  FormatSpec spec{.fill = fill, .align = name == "ljust" ? '<' : '>'};
  spec.width = std::max<int64_t>(0, width);
  append_padded(s, out, text, spec, false);
  return out.finish();
}

Value zero_filled(RenderState& s, const Text& text, const Arguments& a) {
  constexpr std::array<std::string_view, 1> kNames = {"width"};
  const auto b = bind_arguments(s, "zfill", a, kNames, 1);
  FormatSpec spec{.fill = Text::of("0"), .align = '='};
  spec.width = std::max<int64_t>(0, integer_or(s, "zfill", b[0], 0));
  TextBuilder out(s.meter());
  const std::string_view v = text.view();
  // Only a sign stays in front; a prefix such as 0x does not.
  const size_t sign = !v.empty() && (v[0] == '+' || v[0] == '-') ? 1 : 0;
  const auto have = static_cast<int64_t>(count_chars(v));
  out.append(text, 0, sign);
  for (int64_t i = have; i < spec.width && s.take_items(1); ++i) out.append("0", false);
  out.append(text, sign, v.size());
  return out.finish();
}

Value expanded(RenderState& s, const Text& text, const Arguments& a) {
  constexpr std::array<std::string_view, 1> kNames = {"tabsize"};
  const int64_t tab = integer_or(s, "expandtabs", bind_arguments(s, "expandtabs", a, kNames, 0)[0], 8);
  TextBuilder out(s.meter());
  int64_t column = 0;
  for (const Char& c : chars_of(s, text.view())) {
    if (s.failed()) break;
    if (c.code == '\t') {
      const int64_t n = tab > 0 ? tab - column % tab : 0;
      for (int64_t i = 0; i < n && s.take_items(1); ++i) out.append(" ", text.untrusted_at(c.begin));
      column += n;
      continue;
    }
    column = c.code == '\n' || c.code == '\r' ? 0 : column + 1;
    out.append(text, c.begin, c.end);
  }
  return out.finish();
}

Value removed(RenderState& s, const Text& text, std::string_view name, const Arguments& a) {
  constexpr std::array<std::string_view, 1> kNames = {"affix"};
  const auto b = bind_arguments(s, name, a, kNames, 1);
  if (s.failed() || !need_text(s, name, b[0])) return b[0];
  const std::string_view v = text.view(), affix = b[0].view();
  if (name == "removeprefix") return v.starts_with(affix) ? text.part(affix.size(), v.size()) : text;
  return v.ends_with(affix) ? text.part(0, v.size() - affix.size()) : text;
}

Value replace(RenderState& s, const Value& self, const Arguments& a) {
  constexpr std::array<std::string_view, 3> kNames = {"old", "new", "count"};
  const auto b = bind_arguments(s, "replace", a, kNames, 2);
  if (s.failed() || !need_text(s, "replace", b[0]) || !need_text(s, "replace", b[1])) return b[0];
  Text to = b[1].as_text();
  if (self.markup() && !b[1].markup()) {
    TextBuilder escaped(s.meter());
    append_escaped(escaped, to);
    to = escaped.finish();
  }
  return replaced(s, self.as_text(), b[0].view(), to, integer_or(s, "replace", b[2], -1));
}

Value text_result(RenderState& s, const Value& self, std::string_view name, const Arguments& a) {
  const Text text = self.as_text();
  constexpr std::array<std::string_view, 1> kOne = {"value"};
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const auto b = bind_arguments(s, name, a, kOne, 0);
    return stripped(s, self, b[0], name[0] == 'l' ? Side::kLeft : name[0] == 'r' ? Side::kRight : Side::kBoth);
  }
  if (name == "replace") return replace(s, self, a);
  if (name == "join") {
    const auto b = bind_arguments(s, name, a, kOne, 1);
    const auto items = s.failed() ? std::nullopt : s.items_of(b[0]);
    return items ? Value(joined(s, text, *items, true)) : Value::undefined("");
  }
  if (name == "center" || name == "ljust" || name == "rjust") return aligned(s, text, name, a);
  if (name == "zfill") return zero_filled(s, text, a);
  if (name == "expandtabs") return expanded(s, text, a);
  if (name == "removeprefix" || name == "removesuffix") return removed(s, text, name, a);
  bind_arguments(s, name, a, {}, 0);
  if (name == "upper") return upper(s, text);
  if (name == "lower") return lower(s, text);
  if (name == "casefold") return case_folded(s, text);
  if (name == "capitalize") return capitalized(s, text);
  if (name == "title") return titled(s, text);
  return case_swapped(s, text);
}

}  // namespace

Value stripped(RenderState& s, const Value& self, const Value& chars, Side side) {
  const Text text = self.as_text();
  const std::string_view v = text.view();
  std::u32string set;
  const bool white = chars.is_missing() || chars.is_none();
  if (!white) {
    if (!need_text(s, "strip", chars)) return chars;
    for (const Char& c : chars_of(s, chars.view())) set += c.code;
    std::sort(set.begin(), set.end());
  }
  const auto goes = [&](char32_t c) { return white ? is_space(c) : std::binary_search(set.begin(), set.end(), c); };
  size_t begin = 0, end = v.size();
  while (side != Side::kRight && begin < end) {
    const char* p = v.data() + begin;
    if (!goes(read_valid_char(p))) break;
    begin = static_cast<size_t>(p - v.data());
  }
  while (side != Side::kLeft && begin < end) {
    size_t at = end - 1;
    while (at > begin && is_continuation(v[at])) --at;
    const char* p = v.data() + at;
    if (!goes(read_valid_char(p))) break;
    end = at;
  }
  s.meter().take_steps(static_cast<int64_t>((v.size() - (end - begin)) / 8));
  return text.part(begin, end);
}

Text replaced(RenderState& s, const Text& text, std::string_view from, const Text& to, int64_t most) {
  TextBuilder out(s.meter());
  const std::string_view v = text.view();
  s.meter().take_steps(static_cast<int64_t>(v.size() / 32));
  size_t copied = 0;
  int64_t done = 0;
  const auto more = [&] { return (most < 0 || done < most) && s.take_items(1); };
  if (from.empty()) {
    // In front of every character, and at the end.
    for (size_t at = 0; at <= v.size() && more(); ++done) {
      out.append(to);
      const size_t n = at == v.size() ? 1 : read_char(v.data() + at, v.data() + v.size()).bytes;
      copied = std::min(at + n, v.size());
      out.append(text, at, copied);
      at += n;
    }
  } else {
    for (size_t at = 0; more() && (at = find_text(v, from, at)) != kNone; ++done) {
      out.append(text, copied, at);
      out.append(to);
      at += from.size();
      copied = at;
    }
  }
  out.append(text, copied, v.size());
  return out.finish();
}

Text joined(RenderState& s, const Text& separator, const std::vector<Value>& items, bool only_text) {
  TextBuilder out(s.meter());
  for (size_t i = 0; i < items.size() && s.take_items(2); ++i) {
    if (i > 0) out.append(separator);
    if (only_text && !items[i].is_string())
      s.fail(fmt::format("sequence item {}: expected str instance, {} found", i, type_name(items[i])));
    else
      append_text(s, out, items[i]);
  }
  return out.finish();
}

std::vector<Value> split_lines(RenderState& s, const Text& text, bool keep_ends) {
  const std::string_view v = text.view();
  std::vector<Value> lines;
  size_t begin = 0;
  s.meter().take_steps(static_cast<int64_t>(v.size() / 8));
  for (const char *p = v.data(), *const end = p + v.size(); p < end && !s.failed();) {
    const auto at = static_cast<size_t>(p - v.data());
    const char32_t c = read_valid_char(p);
    if (!is_line_end(c)) continue;
    if (c == '\r' && p < end && *p == '\n') ++p;
    const auto behind = static_cast<size_t>(p - v.data());
    if (!s.room_for(1)) break;
    lines.emplace_back(text.part(begin, keep_ends ? behind : at));
    begin = behind;
  }
  if (begin < v.size()) lines.emplace_back(text.part(begin, v.size()));
  return lines;
}

Text centered(RenderState& s, const Text& text, int64_t width, const Text& fill) {
  TextBuilder out(s.meter());
  const auto have = static_cast<int64_t>(count_chars(text.view()));
  const int64_t missing = std::max<int64_t>(0, width - have);
  // Python puts the odd one to the left where the width is odd.
  const int64_t left = missing / 2 + (missing & width & 1);
  for (int64_t i = 0; i < left && s.take_items(1); ++i) out.append(fill);
  out.append(text);
  for (int64_t i = left; i < missing && s.take_items(1); ++i) out.append(fill);
  return out.finish();
}

namespace {

Value result_of(RenderState& s, const Value& self, std::string_view name, const Arguments& a) {
  const Text text = self.as_text();
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex" || name == "count") return find(s, text, name, a);
  if (name == "startswith" || name == "endswith") return starts_or_ends(s, text, name, a);
  if (name == "split" || name == "rsplit") return split(s, text, name, a);
  if (name == "partition" || name == "rpartition") return partition(s, text, name, a);
  if (name == "splitlines") {
    constexpr std::array<std::string_view, 1> kNames = {"keepends"};
    const auto b = bind_arguments(s, name, a, kNames, 0);
    return s.list(split_lines(s, text, truth(b[0])));
  }
  if (name == "format") return brace_format(s, text, a);
  if (name == "format_map") {
    constexpr std::array<std::string_view, 1> kNames = {"mapping"};
    const auto b = bind_arguments(s, name, a, kNames, 1);
    if (s.failed()) return b[0];
    if (!b[0].is(Type::kDict)) return s.fail("format_map() needs a mapping");
    Arguments named;
    if (!s.take_items(8 * b[0].as_dict().entries.size())) return s.fail("");
    for (const auto& [key, value] : b[0].as_dict().entries)
      if (key.is_string()) named.named.emplace_back(ArgumentName{std::string(key.view()), key}, value);
    return brace_format(s, text, named);
  }
  if (name.starts_with("is")) {
    bind_arguments(s, name, a, {}, 0);
    s.meter().take_steps(static_cast<int64_t>(text.size() / 8));
    return is_class(text, name);
  }
  return text_result(s, self, name, a);
}

}  // namespace

Value call_text_method(RenderState& s, const Value& self, std::string_view name, const Arguments& a) {
  Value result = result_of(s, self, name, a);
  if (!self.markup()) return result;
  // What comes of safe text is safe.
  if (result.is_string() && !name.starts_with("format")) return result.with_markup(true);
  if (result.is(Type::kList))
    for (Value& v : result.as_list().items) v = v.with_markup(true);
  return result;
}

}  // namespace baton::text::jinja
