// value.name, value[key] and value[begin:end:step].
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "text/template/builtins.h"
#include "text/template/methods.h"
#include "text/utf8.h"

namespace baton::text::jinja {
namespace {

std::string object_name(const Value& v) { return v.is_none() ? "None" : fmt::format("'{} object'", type_name(v)); }

Value no_attribute(const Value& base, std::string_view name) {
  return Value::undefined(fmt::format("{} has no attribute '{}'", object_name(base), name));
}

// What Python finds by getattr(); missing if nothing.
Value own_attribute(RenderState& s, const Value& base, std::string_view name) {
  if (base.is(Type::kNamespace)) {
    const Value* found = base.as_namespace().find(name);
    return found != nullptr ? *found : Value();
  }
  if (base.is(Type::kFunction)) return base.as_function().attribute(s, name);
  if (base.is(Type::kList) && base.as_list().flavour == List::Flavour::kGroup) {
    if (name == "grouper") return base.as_list().items[0];
    if (name == "list") return base.as_list().items[1];
  }
  const std::string_view method = method_of(base, name);
  return method.empty() ? Value() : s.function<Method>(base, method);
}

// The position of an index in a list of `size`, or -1.
int64_t position(int64_t index, size_t size) {
  const auto n = static_cast<int64_t>(size);
  if (index < 0) index += n;
  return index >= 0 && index < n ? index : -1;
}

Value char_at(RenderState& s, const Value& base, int64_t index) {
  const Text text = base.as_text();
  const std::string_view v = text.view();
  size_t begin = 0;
  if (text.buffer() != nullptr && text.buffer()->ascii) {
    const int64_t at = position(index, v.size());
    if (at < 0) return {};
    begin = static_cast<size_t>(at);
  } else {
    s.meter().take_steps(static_cast<int64_t>(v.size() / 32));
    const int64_t at = position(index, count_chars(v));
    if (at < 0) return {};
    begin = char_offset(v, static_cast<size_t>(at));
  }
  return Value(text.part(begin, begin + read_char(v.data() + begin, v.data() + v.size()).bytes)).with_markup(base.markup());
}

// What Python finds by base[key]; missing if nothing.
Value own_item(RenderState& s, const Value& base, const Value& key) {
  switch (base.type()) {
    case Type::kDict: {
      const Value* found = hashable(key) ? base.as_dict().find(key) : nullptr;
      return found != nullptr ? *found : Value();
    }
    case Type::kList: {
      const List& list = base.as_list();
      if (!list.indexable() || (!key.is(Type::kInt) && !key.is(Type::kBool))) return {};
      const int64_t at = position(key.as_int(), list.items.size());
      return at < 0 ? Value() : list.items[static_cast<size_t>(at)];
    }
    case Type::kString: return key.is(Type::kInt) || key.is(Type::kBool) ? char_at(s, base, key.as_int()) : Value();
    default: return {};
  }
}

}  // namespace

Value attribute(RenderState& s, const Value& base, std::string_view name) {
  if (base.is_undefined()) return s.fail_undefined(base);
  if (Value found = own_attribute(s, base, name); !found.is_missing()) return found;
  if (base.is(Type::kDict))
    if (const Value* found = base.as_dict().find(name)) return *found;
  return no_attribute(base, name);
}

Value item(RenderState& s, const Value& base, const Value& key) {
  if (base.is_undefined()) return s.fail_undefined(base);
  if (Value found = own_item(s, base, key); !found.is_missing()) return found;
  if (key.is_string()) {
    if (Value found = own_attribute(s, base, key.view()); !found.is_missing()) return found;
    return no_attribute(base, key.view());
  }
  if (key.is_undefined() || key.is_missing()) return Value::undefined(fmt::format("{} has no element Undefined", type_name(base)));
  return Value::undefined(
      fmt::format("{} object has no element {}", type_name(base), key.is(Type::kInt) ? fmt::format("{}", key.as_int()) : type_name(key)));
}

Value slice(RenderState& s, const Value& base, const Value& begin, const Value& end, const Value& step) {
  if (base.is_undefined()) return s.fail_undefined(base);
  const bool string = base.is_string();
  if (!string && (!base.is(Type::kList) || !base.as_list().indexable()))
    return s.fail(fmt::format("'{}' object cannot be sliced", type_name(base)));
  const Text text = string ? base.as_text() : Text();
  const bool ascii = !string || text.empty() || text.buffer()->ascii;
  if (!ascii) s.meter().take_steps(static_cast<int64_t>(text.size() / 32));
  const auto size = static_cast<int64_t>(!string ? base.as_list().items.size() : ascii ? text.size() : count_chars(text.view()));

  std::array<int64_t, 3> at = {0, 0, 1};
  const std::array<const Value*, 3> parts = {&begin, &end, &step};
  for (size_t i = 0; i < 3; ++i) {
    const Value& v = *parts[i];
    if (v.is_missing() || v.is_none()) continue;
    if (!v.is_whole()) return s.fail("slice indices must be integers or None");
    // Beyond 64 bits is beyond every list.
    at[i] = v.is(Type::kBigInt) ? (v.as_big() > 0 ? INT64_MAX / 4 : -INT64_MAX / 4) : std::clamp(v.as_int(), -INT64_MAX / 4, INT64_MAX / 4);
  }
  const int64_t by = at[2];
  if (by == 0) return s.fail("slice step cannot be zero");
  const auto given = [](const Value& v) { return !v.is_missing() && !v.is_none(); };
  const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
  const auto clamped = [&](int64_t i) { return std::clamp(i < 0 ? i + size : i, low, high); };
  const int64_t from = given(begin) ? clamped(at[0]) : by > 0 ? low : high;
  const int64_t to = given(end) ? clamped(at[1]) : by > 0 ? high : low;
  const int64_t count = by > 0 ? (to > from ? (to - from - 1) / by + 1 : 0) : (from > to ? (from - to - 1) / -by + 1 : 0);

  if (!string) {
    const List& list = base.as_list();
    if (!s.room_for(static_cast<size_t>(count))) return s.fail("");
    std::vector<Value> items;
    items.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) items.push_back(list.items[static_cast<size_t>(from + i * by)]);
    Value out = s.list(std::move(items), list.flavour == List::Flavour::kGroup ? List::Flavour::kTuple : list.flavour);
    if (list.flavour == List::Flavour::kRange && out.is(Type::kList)) {
      const int64_t old = list.range[2], first = list.range[0];
      out.as_list().range[0] = first + from * old;
      out.as_list().range[1] = first + to * old;
      out.as_list().range[2] = by * old;
    }
    return out;
  }
  if (count == 0) return s.text("");
  const std::string_view v = text.view();
  if (by == 1) {
    const size_t first = ascii ? static_cast<size_t>(from) : char_offset(v, static_cast<size_t>(from));
    const size_t last = ascii ? static_cast<size_t>(to) : first + char_offset(v.substr(first), static_cast<size_t>(count));
    return Value(text.part(first, last)).with_markup(base.markup());
  }
  if (!s.take_items(static_cast<size_t>(size))) return s.fail("");
  std::vector<uint32_t> starts;
  starts.reserve(static_cast<size_t>(size) + 1);
  for (size_t i = 0; i < v.size(); ++i)
    if (!is_continuation(v[i])) starts.push_back(static_cast<uint32_t>(i));
  starts.push_back(static_cast<uint32_t>(v.size()));
  TextBuilder out(s.meter());
  for (int64_t i = 0; i < count; ++i) {
    const auto c = static_cast<size_t>(from + i * by);
    out.append(text, starts[c], starts[c + 1]);
  }
  return Value(out.finish()).with_markup(base.markup());
}

}  // namespace baton::text::jinja
