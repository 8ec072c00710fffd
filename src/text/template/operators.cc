// The operators of expressions.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "text/template/builtins.h"
#include "text/template/html_escape.h"
#include "text/template/number.h"
#include "text/template/text_format.h"
#include "text/template/text_search.h"

namespace baton::text::jinja {
namespace {

Value unsupported(RenderState& s, std::string_view op, const Value& a, const Value& b) {
  if (a.is_undefined()) return s.fail_undefined(a);
  if (b.is_undefined()) return s.fail_undefined(b);
  return s.fail(fmt::format("unsupported operand types for {}: '{}' and '{}'", op, type_name(a), type_name(b)));
}

Value checked(RenderState& s, const BigInt& i, bool untrusted) {
  if (i != 0 && msb(abs(i)) >= kMostIntegerBits) return s.fail("a whole number gets too large", Failure::Kind::kLimit);
  return Value::integer(i, untrusted);
}

Value divided_by_zero(RenderState& s) { return s.fail("division by zero"); }

// Floor division and its remainder, as Python has them.
void divide_whole(const BigInt& a, const BigInt& b, BigInt& quotient, BigInt& rest) {
  divide_qr(a, b, quotient, rest);
  if (rest != 0 && (rest < 0) != (b < 0)) {
    quotient -= 1;
    rest += b;
  }
}

Value power(RenderState& s, const Value& a, const Value& b, bool untrusted) {
  if (a.is_whole() && b.is_whole() && (b.is(Type::kBigInt) ? b.as_big() >= 0 : b.as_int() >= 0)) {
    const BigInt base = a.to_big();
    if (base == 0 || base == 1) return Value::integer(b.to_big() == 0 ? BigInt(1) : base, untrusted);
    if (b.is(Type::kBigInt) || static_cast<uint64_t>(b.as_int()) > kMostIntegerBits ||
        static_cast<uint64_t>(b.as_int()) * (msb(abs(base)) + (base == -1 ? 0 : 1)) > 2 * kMostIntegerBits) {
      if (base == -1) return Value::integer(bit_test(b.to_big(), 0) ? -1 : 1, untrusted);
      return s.fail("a whole number gets too large", Failure::Kind::kLimit);
    }
    return checked(s, boost::multiprecision::pow(base, static_cast<unsigned>(b.as_int())), untrusted);
  }
  const double x = a.to_float(), y = b.to_float();
  if (x == 0 && y < 0) return s.fail("0.0 cannot be raised to a negative power");
  if (x < 0 && y != std::trunc(y) && std::isfinite(y)) return s.fail("complex numbers are not supported");
  const double result = std::pow(x, y);
  if (std::isinf(result) && std::isfinite(x) && std::isfinite(y)) return s.fail("the result of ** is too large");
  return Value::real(result, untrusted);
}

Value float_arithmetic(RenderState& s, std::string_view op, double x, double y, bool untrusted) {
  if (op == "+") return Value::real(x + y, untrusted);
  if (op == "-") return Value::real(x - y, untrusted);
  if (op == "*") return Value::real(x * y, untrusted);
  if (y == 0) return divided_by_zero(s);
  if (op == "/") return Value::real(x / y, untrusted);
  double rest = std::fmod(x, y);
  double quotient = (x - rest) / y;
  if (rest != 0) {
    if ((y < 0) != (rest < 0)) {
      rest += y;
      quotient -= 1;
    }
  } else {
    rest = std::copysign(0.0, y);
  }
  if (op == "%") return Value::real(rest, untrusted);
  double floor = std::floor(quotient);
  if (quotient != 0) {
    if (quotient - floor > 0.5) floor += 1;
  } else {
    floor = std::copysign(0.0, x / y);
  }
  return Value::real(floor, untrusted);
}

Value whole_arithmetic(RenderState& s, std::string_view op, const Value& a, const Value& b, bool untrusted) {
  if (!a.is(Type::kBigInt) && !b.is(Type::kBigInt)) {
    const int64_t x = a.as_int(), y = b.as_int();
    int64_t r = 0;
    if (op == "+" && !__builtin_add_overflow(x, y, &r)) return Value::integer(r, untrusted);
    if (op == "-" && !__builtin_sub_overflow(x, y, &r)) return Value::integer(r, untrusted);
    if (op == "*" && !__builtin_mul_overflow(x, y, &r)) return Value::integer(r, untrusted);
  }
  const BigInt x = a.to_big(), y = b.to_big();
  const auto words = [](const BigInt& i) { return i == 0 ? 1 : static_cast<int64_t>(msb(abs(i)) / 64 + 1); };
  if (!s.meter().take_steps(words(x) * words(y) / 8)) return s.fail("");
  if (op == "+") return checked(s, x + y, untrusted);
  if (op == "-") return checked(s, x - y, untrusted);
  if (op == "*") return checked(s, x * y, untrusted);
  if (y == 0) return divided_by_zero(s);
  if (op == "/") {
    const double d = a.to_float() / b.to_float();
    if (!std::isfinite(d)) return s.fail("a whole number is too large for a float");
    return Value::real(d, untrusted);
  }
  BigInt quotient, rest;
  divide_whole(x, y, quotient, rest);
  return Value::integer(op == "%" ? rest : quotient, untrusted);
}

Value repeated(RenderState& s, const Value& what, const Value& times) {
  if (times.is(Type::kBigInt)) return s.fail("cannot fit 'int' into an index-sized integer");
  const auto n = times.as_int() < 0 ? size_t{0} : static_cast<size_t>(times.as_int());
  const size_t size = what.is_string() ? what.view().size() : what.as_list().items.size();
  if (size != 0 && n > s.meter().limits().live_bytes / size) {
    s.meter().take_bytes(SIZE_MAX);
    return s.fail("");
  }
  if (what.is_string()) {
    TextBuilder out(s.meter());
    for (size_t i = 0; i < n && size != 0 && s.take_items(1); ++i) out.append(what.as_text());
    return Value(out.finish()).with_markup(what.markup());
  }
  if (!s.room_for(n * size)) return s.fail("");
  std::vector<Value> items;
  for (size_t i = 0; i < n; ++i) items.insert(items.end(), what.as_list().items.begin(), what.as_list().items.end());
  return s.list(std::move(items), what.as_list().flavour);
}

bool is_sequence(const Value& v) { return v.is(Type::kList) && (v.as_list().flavour == List::Flavour::kList || v.as_list().is_tuple()); }

Value added_texts(RenderState& s, const Value& a, const Value& b) {
  if (!a.markup() && !b.markup()) {
    TextBuilder out(s.meter(), a.as_text());
    out.append(b.as_text());
    return out.finish();
  }
  TextBuilder out(s.meter());
  for (const Value* v : {&a, &b})
    if (v->markup())
      out.append(v->as_text());
    else
      append_escaped(out, v->as_text());
  return Value(out.finish()).with_markup(true);
}

// Comparing large values takes steps for their size.
bool equal_charged(RenderState& s, const Value& a, const Value& b) {
  return s.meter().take_steps(std::min(a.weight(), b.weight())) && equal(a, b);
}

// -1, 0 or 1; none for what Python does not order.
std::optional<int> order(RenderState& s, const Value& a, const Value& b) {
  const auto sign = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
  if (a.is_number() && b.is_number()) {
    if (!a.is(Type::kFloat) && !b.is(Type::kFloat)) {
      if (!a.is(Type::kBigInt) && !b.is(Type::kBigInt)) return sign(a.as_int(), b.as_int());
      return sign(a.to_big(), b.to_big());
    }
    const double x = a.to_float(), y = b.to_float();
    // A whole number beyond 2^53 beside a float.
    if (std::isfinite(x) && std::isfinite(y) && (a.is_whole() || b.is_whole()) && std::abs(x) > 0x1p53) {
      const BigInt p = a.is_whole() ? a.to_big() : BigInt(x), q = b.is_whole() ? b.to_big() : BigInt(y);
      return sign(p, q);
    }
    if (std::isnan(x) || std::isnan(y)) return 2;  // neither
    return sign(x, y);
  }
  if (a.is_string() && b.is_string()) {
    s.meter().take_steps(std::min(a.weight(), b.weight()));
    return sign(a.view().compare(b.view()), 0);
  }
  if (is_sequence(a) && is_sequence(b) && a.as_list().is_tuple() == b.as_list().is_tuple()) {
    const auto &x = a.as_list().items, &y = b.as_list().items;
    for (size_t i = 0; i < x.size() && i < y.size() && s.take_items(1); ++i)
      if (!equal_charged(s, x[i], y[i])) return order(s, x[i], y[i]);
    return sign(x.size(), y.size());
  }
  return {};
}

}  // namespace

Value arithmetic(RenderState& s, std::string_view op, const Value& a, const Value& b) {
  if (s.failed()) return Value::undefined("");
  if (a.is_number() && b.is_number()) {
    const bool untrusted = a.untrusted() || b.untrusted();
    if (op == "**") return power(s, a, b, untrusted);
    if (a.is(Type::kFloat) || b.is(Type::kFloat)) {
      if (std::isinf(a.to_float()) && a.is(Type::kBigInt)) return s.fail("a whole number is too large for a float");
      if (std::isinf(b.to_float()) && b.is(Type::kBigInt)) return s.fail("a whole number is too large for a float");
    }
    if (a.is(Type::kFloat) || b.is(Type::kFloat)) return float_arithmetic(s, op, a.to_float(), b.to_float(), untrusted);
    return whole_arithmetic(s, op, a, b, untrusted);
  }
  if (op == "+" && a.is_string() && b.is_string()) return added_texts(s, a, b);
  if (op == "+" && is_sequence(a) && is_sequence(b) && a.as_list().is_tuple() == b.as_list().is_tuple()) {
    if (!s.room_for(a.as_list().items.size() + b.as_list().items.size())) return s.fail("");
    std::vector<Value> items = a.as_list().items;
    items.insert(items.end(), b.as_list().items.begin(), b.as_list().items.end());
    return s.list(std::move(items), a.as_list().is_tuple() ? List::Flavour::kTuple : List::Flavour::kList);
  }
  if (op == "*" && (a.is_string() || is_sequence(a)) && b.is_whole()) return repeated(s, a, b);
  if (op == "*" && (b.is_string() || is_sequence(b)) && a.is_whole()) return repeated(s, b, a);
  if (op == "%" && a.is_string()) return percent_format(s, a, b);
  return unsupported(s, op, a, b);
}

bool contains(RenderState& s, const Value& where, const Value& what) {
  switch (where.type()) {
    case Type::kUndefined: return false;
    case Type::kString:
      if (!what.is_string()) {
        s.fail(fmt::format("'in <string>' needs a string on its left, not '{}'", type_name(what)));
        return false;
      }
      s.meter().take_steps(where.weight());
      return find_text(where.view(), what.view(), 0) != std::string_view::npos;
    case Type::kDict:
      if (!hashable(what)) {
        s.fail(fmt::format("unhashable type: '{}'", type_name(what)));
        return false;
      }
      return where.as_dict().find(what) != nullptr;
    case Type::kList:
    case Type::kIterator: {
      // By index and up to the first, as Python does; a generator is used up to there.
      const bool once = where.is(Type::kIterator);
      const std::vector<Value>& items = once ? where.as_iterator().items : where.as_list().items;
      size_t i = once ? where.as_iterator().next : 0;
      bool found = false;
      for (; i < items.size() && !found && s.take_items(1); ++i) found = equal_charged(s, items[i], what);
      if (once) where.as_iterator().next = i;
      return found;
    }
    default: s.fail(fmt::format("argument of type '{}' is not iterable", type_name(where))); return false;
  }
}

bool compare(RenderState& s, std::string_view op, const Value& a, const Value& b) {
  if (s.failed()) return false;
  if (op == "==") return equal_charged(s, a, b);
  if (op == "!=") return !equal_charged(s, a, b);
  if (op == "in") return contains(s, b, a);
  if (op == "not in") return !contains(s, b, a);
  const std::optional<int> o = order(s, a, b);
  if (!o) {
    if (a.is_undefined() || b.is_undefined())
      s.fail_undefined(a.is_undefined() ? a : b);
    else
      s.fail(fmt::format("'{}' not supported between instances of '{}' and '{}'", op, type_name(a), type_name(b)));
    return false;
  }
  if (*o == 2) return false;
  if (op == "<") return *o < 0;
  if (op == "<=") return *o <= 0;
  if (op == ">") return *o > 0;
  return *o >= 0;
}

}  // namespace baton::text::jinja
