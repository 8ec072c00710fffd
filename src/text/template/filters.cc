// Filters by name, and those of numbers and single values.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "text/template/filter_table.h"
#include "text/template/html_escape.h"
#include "text/template/json_text.h"
#include "text/template/methods.h"
#include "text/template/number.h"

namespace baton::text::jinja {
namespace {

Value filter_abs(RenderState& s, const Value& v, const Bound&) {
  if (v.is(Type::kFloat)) return Value::real(std::abs(v.as_float()), v.untrusted());
  if (v.is_whole()) return Value::integer(BigInt(abs(v.to_big())), v.untrusted());
  return s.fail(v.is_undefined() ? v.why() : fmt::format("bad operand type for abs(): '{}'", type_name(v)));
}

Value filter_int(RenderState& s, const Value& v, const Bound& b) {
  const Value fallback = b[0].is_missing() ? Value::integer(0) : b[0];
  const int base = b[1].is(Type::kInt) ? static_cast<int>(std::clamp<int64_t>(b[1].as_int(), -1, 99)) : 10;
  if (v.is_undefined()) return s.fail_undefined(v);
  if (v.is_whole()) return Value::integer(v.to_big(), v.untrusted());
  std::optional<Value> i;
  bool untrusted = v.untrusted();
  if (v.is_string()) {
    const size_t digits = std::min(v.view().size(), size_t{kMostIntegerBits});
    if (!s.take_items(digits * digits / 64)) return Value::undefined("");
    i = parse_integer(v.view(), base);
    untrusted = v.as_text().any_untrusted();
    if (!i)
      if (const auto d = parse_float(v.view())) i = truncated(*d);
  } else if (v.is(Type::kFloat)) {
    i = truncated(v.as_float());
  }
  return i ? Value::integer(i->to_big(), untrusted) : fallback;
}

Value filter_float(RenderState& s, const Value& v, const Bound& b) {
  if (v.is_undefined()) return s.fail_undefined(v);
  if (v.is(Type::kBigInt) && std::isinf(v.to_float())) return s.fail("a whole number is too large for a float");
  if (v.is_number()) return Value::real(v.to_float(), v.untrusted());
  if (v.is_string())
    if (const auto d = parse_float(v.view())) return Value::real(*d, v.as_text().any_untrusted());
  return b[0].is_missing() ? Value::real(0) : b[0];
}

Value filter_round(RenderState& s, const Value& v, const Bound& b) {
  if (v.is_undefined()) return s.fail_undefined(v);
  if (!v.is_number()) return s.fail(fmt::format("type {} doesn't define round", type_name(v)));
  if (!b[0].is_missing() && !b[0].is(Type::kInt)) return s.fail("round(): the precision is no whole number");
  const int digits = b[0].is_missing() ? 0 : static_cast<int>(std::clamp<int64_t>(b[0].as_int(), -400, 400));
  const std::string method = b[1].is_missing() ? "common" : b[1].is_string() ? std::string(b[1].view()) : "";
  if (method == "common") {
    if (v.is(Type::kFloat)) return Value::real(round_float(v.as_float(), digits), v.untrusted());
    if (digits >= 0) return Value::integer(v.to_big(), v.untrusted());
    // To tens and so on, half to even.
    const BigInt unit = boost::multiprecision::pow(BigInt(10), static_cast<unsigned>(-digits));
    BigInt quotient = 0, rest = 0;
    divide_qr(v.to_big(), unit, quotient, rest);
    const BigInt twice = 2 * BigInt(abs(rest));
    if (twice > unit || (twice == unit && bit_test(BigInt(abs(quotient)), 0))) quotient += v.to_big() < 0 ? -1 : 1;
    return Value::integer(BigInt(quotient * unit), v.untrusted());
  }
  if (method != "ceil" && method != "floor") return s.fail("method must be common, ceil or floor");
  const double scale = std::pow(10.0, digits);
  const double x = v.to_float() * scale;
  if (!std::isfinite(x)) return s.fail("round(): the number is too large");
  return Value::real((method == "ceil" ? std::ceil(x) : std::floor(x)) / scale, v.untrusted());
}

Value filter_default(RenderState&, const Value& v, const Bound& b) {
  const bool boolean = truth(b[1]);
  if (!v.is_undefined() && (!boolean || truth(v))) return v;
  return b[0].is_missing() ? Value::text("") : b[0];
}

Value filter_string(RenderState& s, const Value& v, const Bound&) { return v.is_string() ? v : Value(to_text(s, v)); }

Value filter_escape(RenderState& s, const Value& v, const Bound&) {
  if (v.markup()) return v;
  TextBuilder out(s.meter());
  append_escaped(out, to_text(s, v));
  return Value(out.finish()).with_markup(true);
}

Value filter_force_escape(RenderState& s, const Value& v, const Bound& b) { return filter_escape(s, v.with_markup(false), b); }
Value filter_safe(RenderState& s, const Value& v, const Bound&) { return Value(to_text(s, v)).with_markup(true); }

Value filter_tojson(RenderState& s, const Value& v, const Bound& b) {
  // ensure_ascii, indent, separators, sort_keys: the order of the chat templates' own tojson.
  JsonStyle style;
  style.ascii = truth(b[0]);
  style.indented = !b[1].is_missing() && !b[1].is_none();
  style.between_items = Text::of(style.indented ? "," : ", ");
  style.behind_key = Text::of(": ");
  if (style.indented) {
    if (b[1].is_string()) {
      style.indent = b[1].as_text();
    } else if (b[1].is_whole() && !b[1].is(Type::kBigInt)) {
      if (b[1].as_int() > 1000) return s.fail("tojson(): the indent is too large");
      style.indent = Text::of(std::string(static_cast<size_t>(std::max<int64_t>(0, b[1].as_int())), ' '));
    } else {
      return s.fail("tojson(): the indent is neither a number nor text");
    }
  }
  if (!b[2].is_missing() && !b[2].is_none()) {
    const auto parts = s.items_of(b[2]);
    if (!parts || parts->size() != 2 || !(*parts)[0].is_string() || !(*parts)[1].is_string())
      return s.fail("tojson(): separators are two texts");
    style.between_items = (*parts)[0].as_text();
    style.behind_key = (*parts)[1].as_text();
  }
  style.sort_keys = truth(b[3]);
  return to_json(s, v, style);
}

Value filter_attr(RenderState& s, const Value& v, const Bound& b) {
  if (!b[0].is_string()) return s.fail("attr() needs a name");
  if (v.is_undefined()) return s.fail_undefined(v);
  // Attributes only, no items.
  if (v.is(Type::kDict) && method_of(v, b[0].view()).empty())
    return Value::undefined(fmt::format("'dict object' has no attribute '{}'", b[0].view()));
  return attribute(s, v, b[0].view());
}

Value filter_filesizeformat(RenderState& s, const Value& v, const Bound& b) {
  const bool binary = truth(b[0]);
  std::optional<double> size = v.is_number() ? std::optional(v.to_float()) : v.is_string() ? parse_float(v.view()) : std::nullopt;
  if (!size || !std::isfinite(*size)) return s.fail("filesizeformat needs a number");
  const bool untrusted = v.is_string() ? v.as_text().any_untrusted() : v.untrusted();
  const double base = binary ? 1024 : 1000;
  if (*size == 1) return s.text("1 Byte", untrusted);
  if (*size < base) return s.text(fmt::format("{} Bytes", static_cast<int64_t>(*size)), untrusted);
  double unit = base * base;
  const std::string_view letters = binary ? "KMGTPEZY" : "kMGTPEZY";
  size_t i = 0;
  for (; i + 1 < letters.size() && *size >= unit; ++i) unit *= base;
  return s.text(fmt::format("{:.1f} {}{}", base * *size / unit, letters[i], binary ? "iB" : "B"), untrusted);
}

constexpr FilterEntry kScalarFilters[] = {
    {"abs", filter_abs, {}, 0},
    {"int", filter_int, {"default", "base"}, 0},
    {"float", filter_float, {"default"}, 0},
    {"round", filter_round, {"precision", "method"}, 0},
    {"default", filter_default, {"default_value", "boolean"}, 0},
    {"d", filter_default, {"default_value", "boolean"}, 0},
    {"string", filter_string, {}, 0},
    {"escape", filter_escape, {}, 0},
    {"e", filter_escape, {}, 0},
    {"forceescape", filter_force_escape, {}, 0},
    {"safe", filter_safe, {}, 0},
    {"tojson", filter_tojson, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0},
    {"attr", filter_attr, {"name"}, 1},
    {"filesizeformat", filter_filesizeformat, {"binary"}, 0},
};

const FilterEntry* find_filter(std::string_view name) {
  for (const auto table : {std::span<const FilterEntry>(kScalarFilters), text_filters(), sequence_filters()})
    for (const FilterEntry& e : table)
      if (e.name == name) return &e;
  return nullptr;
}

}  // namespace

std::string filter_problem(std::string_view name) {
  if (find_filter(name) != nullptr) return {};
  constexpr std::array<std::string_view, 6> kRefused = {"random", "pprint", "urlize", "xmlattr", "striptags", "wordwrap"};
  if (std::find(kRefused.begin(), kRefused.end(), name) != kRefused.end()) return fmt::format("the filter '{}' is not supported", name);
  return fmt::format("there is no filter '{}'", name);
}

Value apply_filter(RenderState& s, std::string_view name, const Value& v, const Arguments& a) {
  if (s.failed()) return Value::undefined("");
  const FilterEntry* e = find_filter(name);
  if (e == nullptr) return s.fail(filter_problem(name));
  if (e->free_run != nullptr) return e->free_run(s, v, a);
  const auto names = e->names();
  const auto bound = bind_arguments(s, name, a, names, e->required);
  if (s.failed()) return Value::undefined("");
  return e->run(s, v, bound);
}

}  // namespace baton::text::jinja
