// Filters of text.
#include <fmt/format.h>

#include <algorithm>

#include "text/template/characters.h"
#include "text/template/filter_table.h"
#include "text/template/methods.h"
#include "text/template/text_case.h"
#include "text/template/text_format.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

Value filter_upper(RenderState& s, const Value& v, const Bound&) { return upper(s, to_text(s, v)); }
Value filter_lower(RenderState& s, const Value& v, const Bound&) { return lower(s, to_text(s, v)); }
Value filter_capitalize(RenderState& s, const Value& v, const Bound&) { return capitalized(s, to_text(s, v)); }
Value filter_title(RenderState& s, const Value& v, const Bound&) { return title_words(s, to_text(s, v)); }
Value filter_trim(RenderState& s, const Value& v, const Bound& b) { return stripped(s, to_text(s, v), b[0], Side::kBoth); }

Value filter_replace(RenderState& s, const Value& v, const Bound& b) {
  int64_t most = -1;
  if (b[2].is(Type::kInt))
    most = b[2].as_int();
  else if (!b[2].is_missing() && !b[2].is_none())
    return s.fail("replace(): the count is no whole number");
  const Text from = to_text(s, b[0]);
  return replaced(s, to_text(s, v), from.view(), to_text(s, b[1]), most);
}

Value filter_center(RenderState& s, const Value& v, const Bound& b) {
  if (!b[0].is_missing() && !b[0].is(Type::kInt)) return s.fail("center(): the width is no whole number");
  return centered(s, to_text(s, v), b[0].is_missing() ? 80 : b[0].as_int(), Text::of(" "));
}

Value filter_indent(RenderState& s, const Value& v, const Bound& b) {
  if (!v.is_string()) return s.fail(v.is_undefined() ? v.why() : fmt::format("indent() needs text, not {}", type_name(v)));
  Text indent = Text::of("    ");
  if (b[0].is_string()) {
    indent = b[0].as_text();
  } else if (b[0].is_whole() && !b[0].is(Type::kBigInt)) {
    if (b[0].as_int() > 1000) return s.fail("indent(): the width is too large");
    indent = Text::of(std::string(static_cast<size_t>(std::max<int64_t>(0, b[0].as_int())), ' '));
  } else if (!b[0].is_missing()) {
    return s.fail("indent(): the width is neither a number nor text");
  }
  const bool first = truth(b[1]), blank = truth(b[2]);
  // One line end more, so that the last line counts as one whether it has an end or not.
  TextBuilder whole(s.meter());
  whole.append(v.as_text());
  whole.append("\n", false);
  TextBuilder out(s.meter());
  bool at_first = true;
  for (const Value& line : split_lines(s, whole.finish(), false)) {
    if (!at_first) out.append("\n", false);
    if (at_first ? first : blank || !line.view().empty()) out.append(indent);
    at_first = false;
    out.append(line.as_text());
  }
  return out.finish();
}

Value filter_truncate(RenderState& s, const Value& v, const Bound& b) {
  if (v.is_undefined()) return v;
  const int64_t length = b[0].is(Type::kInt) ? b[0].as_int() : 255;
  const bool kill_words = truth(b[1]);
  const Text end = b[2].is_string() ? b[2].as_text() : Text::of("...");
  const int64_t leeway = b[3].is(Type::kInt) ? b[3].as_int() : 5;
  const auto end_chars = static_cast<int64_t>(count_chars(end.view()));
  if (length < end_chars || leeway < 0) return s.fail("truncate(): the length is smaller than what is appended");
  if (!v.is_string()) {
    // Short lists pass, as they do in Python.
    const bool list = v.is(Type::kList), dict = v.is(Type::kDict);
    const size_t items = list ? v.as_list().items.size() : dict ? v.as_dict().entries.size() : SIZE_MAX;
    if (items < static_cast<size_t>(INT32_MAX) && static_cast<int64_t>(items) - leeway <= length) return v;
    return s.fail(fmt::format("truncate() needs text, not {}", type_name(v)));
  }
  const Text text = v.as_text();
  const auto size = static_cast<int64_t>(count_chars(text.view()));
  s.meter().take_steps(static_cast<int64_t>(text.size() / 32));
  if (size <= length || size - length <= leeway) return v;
  size_t keep = char_offset(text.view(), static_cast<size_t>(length - end_chars));
  if (!kill_words) keep = std::min(keep, text.view().substr(0, keep).rfind(' '));
  TextBuilder out(s.meter());
  out.append(text, 0, keep);
  out.append(end);
  return out.finish();
}

Value filter_wordcount(RenderState& s, const Value& v, const Bound&) {
  const Text text = to_text(s, v);
  const std::string_view bytes = text.view();
  s.meter().take_steps(static_cast<int64_t>(bytes.size() / 8));
  int64_t words = 0;
  bool inside = false;
  for (const char *p = bytes.data(), *const end = p + bytes.size(); p < end;) {
    const char32_t c = read_valid_char(p);
    const bool part = c == '_' || is_alnum(c);
    if (part && !inside) ++words;
    inside = part;
  }
  return Value::integer(words);
}

void append_url(TextBuilder& out, const Text& text, bool for_query) {
  const std::string_view bytes = text.view();
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '.' || c == '-' ||
                       c == '~' || (c == '/' && !for_query);
    if (plain)
      out.append(text, i, i + 1);
    else
      out.append(for_query && c == ' ' ? "+" : fmt::format("%{:02X}", static_cast<uint8_t>(c)), text.untrusted_at(i));
  }
}

Value filter_urlencode(RenderState& s, const Value& v, const Bound&) {
  TextBuilder out(s.meter());
  const bool pairs = v.is(Type::kDict) || v.is(Type::kList) || v.is(Type::kIterator);
  if (!pairs) {
    const Text text = to_text(s, v);
    if (s.take_items(text.size())) append_url(out, text, false);
    return out.finish();
  }
  std::vector<std::pair<Value, Value>> entries;
  if (v.is(Type::kDict)) {
    entries = v.as_dict().entries;
  } else {
    const auto items = s.items_of(v);
    for (size_t i = 0; items && i < items->size(); ++i) {
      const auto pair = s.items_of((*items)[i]);
      if (!pair || pair->size() != 2) return s.fail("urlencode(): pairs are needed");
      entries.emplace_back((*pair)[0], (*pair)[1]);
    }
  }
  bool first = true;
  for (const auto& [key, value] : entries) {
    if (!first) out.append("&", false);
    first = false;
    const Text k = to_text(s, key), t = to_text(s, value);
    if (!s.take_items(k.size() + t.size())) break;
    append_url(out, k, true);
    out.append("=", false);
    append_url(out, t, true);
  }
  return out.finish();
}

Value filter_format(RenderState& s, const Value& v, const Arguments& a) {
  if (!a.positional.empty() && !a.named.empty()) return s.fail("format(): arguments with and without names do not go together");
  Value values;
  if (a.named.empty()) {
    values = s.list(a.positional, List::Flavour::kTuple);
  } else {
    auto dict = s.new_dict();
    for (const auto& [name, value] : a.named) dict->set(s.key_of(name), value);
    values = s.dict(std::move(dict));
  }
  return s.failed() ? values : percent_format(s, Value(to_text(s, v)), values);
}

constexpr FilterEntry kTextFilters[] = {
    {"upper", filter_upper, {}, 0},
    {"lower", filter_lower, {}, 0},
    {"capitalize", filter_capitalize, {}, 0},
    {"title", filter_title, {}, 0},
    {"trim", filter_trim, {"chars"}, 0},
    {"replace", filter_replace, {"old", "new", "count"}, 2},
    {"center", filter_center, {"width"}, 0},
    {"indent", filter_indent, {"width", "first", "blank"}, 0},
    {"truncate", filter_truncate, {"length", "killwords", "end", "leeway"}, 0},
    {"wordcount", filter_wordcount, {}, 0},
    {"urlencode", filter_urlencode, {}, 0},
    {"format", nullptr, {}, 0, filter_format},
};

}  // namespace

std::span<const FilterEntry> text_filters() { return kTextFilters; }

}  // namespace baton::text::jinja
