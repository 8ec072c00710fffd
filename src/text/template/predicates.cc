// Tests: what stands behind `is`.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "text/template/builtins.h"
#include "text/template/characters.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

using Test = bool (*)(RenderState&, const Value&, const Value&);  // subject, argument or missing

bool same_case(const Text& text, bool (*wanted)(char32_t), bool (*unwanted)(char32_t)) {
  bool any = false;
  for (const char *p = text.view().data(), *const end = p + text.size(); p < end;) {
    const char32_t c = read_valid_char(p);
    if (unwanted(c) || is_title(c)) return false;
    any |= wanted(c);
  }
  return any;
}

bool is_iterable(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is(Type::kList) || v.is(Type::kDict) || v.is(Type::kIterator) ||
         (v.is(Type::kFunction) && v.as_function().kind == Function::Kind::kLoop);
}

// len() and [] are there.
bool is_sequence(const Value& v) {
  return v.is_undefined() || v.is_string() || v.is(Type::kDict) || (v.is(Type::kList) && v.as_list().indexable());
}

bool remainder_is(RenderState& s, const Value& v, const Value& by, int64_t wanted) {
  return compare(s, "==", arithmetic(s, "%", v, by), Value::integer(wanted));
}

bool is_key(RenderState& s, const Value& v) {
  if (!hashable(v)) s.fail(fmt::format("unhashable type: '{}'", type_name(v)));
  return !s.failed();
}

bool same_as(RenderState&, const Value& a, const Value& b) {
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::kNone: return true;
    case Type::kBool:
    case Type::kInt: return a.as_int() == b.as_int();  // small numbers are one object in Python; so are all here
    case Type::kString:
    case Type::kFloat: return equal(a, b);
    default: return a.same_object(b);
  }
}

struct Entry {
  std::string_view name;
  Test run;
  bool has_argument = false;
};

constexpr Entry kTests[] = {
    {"defined", [](RenderState&, const Value& v, const Value&) { return !v.is_undefined(); }},
    {"undefined", [](RenderState&, const Value& v, const Value&) { return v.is_undefined(); }},
    {"none", [](RenderState&, const Value& v, const Value&) { return v.is_none(); }},
    {"boolean", [](RenderState&, const Value& v, const Value&) { return v.is(Type::kBool); }},
    {"true", [](RenderState&, const Value& v, const Value&) { return v.is(Type::kBool) && v.as_bool(); }},
    {"false", [](RenderState&, const Value& v, const Value&) { return v.is(Type::kBool) && !v.as_bool(); }},
    {"integer", [](RenderState&, const Value& v, const Value&) { return v.is_integer(); }},
    {"float", [](RenderState&, const Value& v, const Value&) { return v.is(Type::kFloat); }},
    {"number", [](RenderState&, const Value& v, const Value&) { return v.is_number(); }},
    {"string", [](RenderState&, const Value& v, const Value&) { return v.is_string(); }},
    {"mapping", [](RenderState&, const Value& v, const Value&) { return v.is(Type::kDict); }},
    {"sequence", [](RenderState&, const Value& v, const Value&) { return is_sequence(v); }},
    {"iterable", [](RenderState&, const Value& v, const Value&) { return is_iterable(v); }},
    {"callable",
     [](RenderState&, const Value& v, const Value&) {
       // An undefined value has a method that raises, which Python takes for callable.
       return v.is_undefined() || (v.is(Type::kFunction) && v.as_function().kind != Function::Kind::kCycler);
     }},
    {"escaped", [](RenderState&, const Value& v, const Value&) { return v.markup(); }},
    {"odd", [](RenderState& s, const Value& v, const Value&) { return remainder_is(s, v, Value::integer(2), 1); }},
    {"even", [](RenderState& s, const Value& v, const Value&) { return remainder_is(s, v, Value::integer(2), 0); }},
    {"divisibleby", [](RenderState& s, const Value& v, const Value& by) { return remainder_is(s, v, by, 0); }, true},
    {"lower", [](RenderState& s, const Value& v, const Value&) { return same_case(to_text(s, v), is_lower, is_upper); }},
    {"upper", [](RenderState& s, const Value& v, const Value&) { return same_case(to_text(s, v), is_upper, is_lower); }},
    {"filter",
     [](RenderState& s, const Value& v, const Value&) { return is_key(s, v) && v.is_string() && filter_problem(v.view()).empty(); }},
    {"test", [](RenderState& s, const Value& v, const Value&) { return is_key(s, v) && v.is_string() && is_test(v.view()); }},
    {"sameas", same_as, true},
    {"in", [](RenderState& s, const Value& v, const Value& where) { return contains(s, where, v); }, true},
    {"eq", [](RenderState& s, const Value& a, const Value& b) { return compare(s, "==", a, b); }, true},
    {"equalto", [](RenderState& s, const Value& a, const Value& b) { return compare(s, "==", a, b); }, true},
    {"==", [](RenderState& s, const Value& a, const Value& b) { return compare(s, "==", a, b); }, true},
    {"ne", [](RenderState& s, const Value& a, const Value& b) { return compare(s, "!=", a, b); }, true},
    {"!=", [](RenderState& s, const Value& a, const Value& b) { return compare(s, "!=", a, b); }, true},
    {"lt", [](RenderState& s, const Value& a, const Value& b) { return compare(s, "<", a, b); }, true},
    {"lessthan", [](RenderState& s, const Value& a, const Value& b) { return compare(s, "<", a, b); }, true},
    {"<", [](RenderState& s, const Value& a, const Value& b) { return compare(s, "<", a, b); }, true},
    {"le", [](RenderState& s, const Value& a, const Value& b) { return compare(s, "<=", a, b); }, true},
    {"<=", [](RenderState& s, const Value& a, const Value& b) { return compare(s, "<=", a, b); }, true},
    {"gt", [](RenderState& s, const Value& a, const Value& b) { return compare(s, ">", a, b); }, true},
    {"greaterthan", [](RenderState& s, const Value& a, const Value& b) { return compare(s, ">", a, b); }, true},
    {">", [](RenderState& s, const Value& a, const Value& b) { return compare(s, ">", a, b); }, true},
    {"ge", [](RenderState& s, const Value& a, const Value& b) { return compare(s, ">=", a, b); }, true},
    {">=", [](RenderState& s, const Value& a, const Value& b) { return compare(s, ">=", a, b); }, true},
};

const Entry* find_test(std::string_view name) {
  const auto* at = std::find_if(std::begin(kTests), std::end(kTests), [&](const Entry& e) { return e.name == name; });
  return at == std::end(kTests) ? nullptr : at;
}

}  // namespace

bool is_test(std::string_view name) { return find_test(name) != nullptr; }

bool apply_test(RenderState& s, std::string_view name, const Value& v, const Arguments& a) {
  const Entry* e = find_test(name);
  if (e == nullptr) {
    s.fail(fmt::format("there is no test '{}'", name));
    return false;
  }
  if (s.failed()) return false;
  const size_t given = a.positional.size() + a.named.size();
  if (given != (e->has_argument ? 1 : 0)) {
    s.fail(fmt::format("the test '{}' takes {} argument, {} are given", name, e->has_argument ? "one" : "no", given));
    return false;
  }
  return e->run(s, v, given == 0 ? Value() : a.positional.empty() ? a.named[0].second : a.positional[0]);
}

}  // namespace baton::text::jinja
