// The functions that every template knows.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "text/template/builtins.h"
#include "text/template/methods.h"
#include "text/template/strftime.h"

namespace baton::text::jinja {
namespace {

constexpr std::string_view kRange = "range", kDict = "dict", kNamespace = "namespace", kCycler = "cycler", kJoiner = "joiner",
                           kRaise = "raise_exception", kTime = "strftime_now", kLipsum = "lipsum";
constexpr std::array<std::string_view, 8> kFunctions = {kRange, kDict, kNamespace, kCycler, kJoiner, kRaise, kTime, kLipsum};

Value range(RenderState& s, const Arguments& a) {
  const size_t n = a.positional.size();
  if (n < 1 || n > 3 || !a.named.empty()) return s.fail("range() takes one to three whole numbers");
  std::array<int64_t, 3> r = {0, 0, 1};
  for (size_t i = 0; i < n; ++i) {
    const Value& v = a.positional[i];
    if (v.is_undefined()) return s.fail_undefined(v);
    if (!v.is_whole()) return s.fail(fmt::format("'{}' object cannot be interpreted as an integer", type_name(v)));
    // Far beyond every range that is allowed.
    r[n == 1 ? 1 : i] =
        v.is(Type::kBigInt) ? (v.as_big() > 0 ? INT64_MAX / 4 : -INT64_MAX / 4) : std::clamp(v.as_int(), -INT64_MAX / 4, INT64_MAX / 4);
  }
  const auto [begin, end, step] = r;
  if (step == 0) return s.fail("range() arg 3 must not be zero");
  const int64_t count = step > 0 ? (end > begin ? (end - begin - 1) / step + 1 : 0) : (begin > end ? (begin - end - 1) / -step + 1 : 0);
  if (count > kMostRangeItems)
    return s.fail(fmt::format("a range may not have more than {} numbers", kMostRangeItems), Failure::Kind::kLimit);
  if (!s.room_for(static_cast<size_t>(count))) return s.fail("");
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) items.push_back(Value::integer(begin + i * step));
  Value list = s.list(std::move(items), List::Flavour::kRange);
  std::copy(r.begin(), r.end(), list.as_list().range);
  return list;
}

// Key and value of every pair in `v`; of an object its own.
bool add_pairs(RenderState& s, const Value& v, const std::function<void(const Value&, const Value&)>& add) {
  if (v.is(Type::kDict)) {
    for (const auto& [key, value] : v.as_dict().entries)
      if (s.take_items(2)) add(key, value);
    return !s.failed();
  }
  const auto items = s.items_of(v);
  if (!items) return false;
  for (const Value& pair : *items) {
    const auto parts = s.items_of(pair);
    if (!parts || parts->size() != 2 || !hashable((*parts)[0])) {
      s.fail("pairs of a key and a value are needed");
      return false;
    }
    if (s.take_items(2)) add((*parts)[0], (*parts)[1]);
  }
  return !s.failed();
}

Value dict(RenderState& s, const Arguments& a) {
  auto out = s.new_dict();
  if (a.positional.size() > 1) return s.fail("dict() takes at most one argument without a name");
  if (!a.positional.empty() && !add_pairs(s, a.positional[0], [&](const Value& k, const Value& v) { out->set(k, v); })) return s.fail("");
  for (const auto& [name, value] : a.named) out->set(s.key_of(name), value);
  return s.dict(std::move(out));
}

Value make_namespace(RenderState& s, const Arguments& a) {
  Value out = s.new_namespace();
  auto& attributes = out.as_namespace().attributes;
  const auto set = [&](std::string_view name, const Value& value) {
    for (auto& [n, v] : attributes)
      if (n == name) {
        v = value;
        return;
      }
    attributes.emplace_back(name, value);
    out.as_namespace().charge(2 * sizeof attributes.back());
    s.take_items(attributes.size());
  };
  if (a.positional.size() > 1) return s.fail("namespace() takes at most one argument without a name");
  if (!a.positional.empty() && !add_pairs(s, a.positional[0], [&](const Value& k, const Value& v) {
        if (k.is_string()) set(k.view(), v);
      }))
    return s.fail("");
  for (const auto& [name, value] : a.named) set(name.text, value);
  return out;
}

Value raise(RenderState& s, const Arguments& a) {
  constexpr std::array<std::string_view, 1> kNames = {"message"};
  const auto b = bind_arguments(s, kRaise, a, kNames, 1);
  if (s.failed()) return b[0];
  return s.fail(std::string(to_text(s, b[0]).view()), Failure::Kind::kRaised);
}

}  // namespace

Value builtin_function(std::string_view name) {
  const auto* at = std::find(kFunctions.begin(), kFunctions.end(), name);
  return at == kFunctions.end() ? Value() : Value(std::shared_ptr<Function>(std::make_shared<Builtin>(*at)));
}

bool unsupported_function(std::string_view name) { return name == kLipsum; }

Value Cycler::attribute(RenderState& s, std::string_view name) {
  if (name == "current") return items[next];
  if (name == "next" || name == "reset") return s.function<Method>(Value(shared_from_this()), name == "next" ? "next" : "reset");
  return {};
}

Value Cycler::call_method(RenderState& s, std::string_view name, const Arguments& a) {
  bind_arguments(s, name, a, {}, 0);
  if (name == "reset") {
    next = 0;
    return Value::none();
  }
  const Value now = items[next];
  next = (next + 1) % items.size();
  return now;
}

Value call_function(RenderState& s, const Value& f, const Arguments& a) {
  if (s.failed()) return Value::undefined("");
  if (f.is_undefined()) return s.fail_undefined(f);
  if (!f.is(Type::kFunction)) return s.fail(fmt::format("'{}' object is not callable", type_name(f)));
  Function& function = f.as_function();
  switch (function.kind) {
    case Function::Kind::kMethod: {
      const auto& m = static_cast<const Method&>(function);
      return call_method(s, m.self, m.name, a);
    }
    case Function::Kind::kJoiner: {
      auto& joiner = static_cast<Joiner&>(function);
      if (joiner.used) return joiner.separator;
      joiner.used = true;
      return s.text("");
    }
    case Function::Kind::kBuiltin: break;
    default: return s.fail("this object is not callable");
  }
  const std::string_view name = static_cast<const Builtin&>(function).name;
  if (name == kRange) return range(s, a);
  if (name == kDict) return dict(s, a);
  if (name == kNamespace) return make_namespace(s, a);
  if (name == kRaise) return raise(s, a);
  if (name == kCycler) {
    if (a.positional.empty() || !a.named.empty()) return s.fail("cycler() needs at least one item");
    return s.function<Cycler>(a.positional);
  }
  constexpr std::array<std::string_view, 1> kSeparator = {"sep"};
  constexpr std::array<std::string_view, 1> kFormat = {"format"};
  if (name == kJoiner) {
    const auto b = bind_arguments(s, name, a, kSeparator, 0);
    return s.function<Joiner>(b[0].is_missing() ? s.text(", ") : b[0]);
  }
  if (name == kTime) {
    const auto b = bind_arguments(s, name, a, kFormat, 1);
    if (s.failed()) return b[0];
    if (!b[0].is_string()) return s.fail(fmt::format("strftime_now() needs a format, not {}", type_name(b[0])));
    return format_time(s, b[0].as_text());
  }
  return s.fail(fmt::format("the function '{}' is not supported", name));
}

}  // namespace baton::text::jinja
