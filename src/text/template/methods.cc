#include "text/template/methods.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "text/template/builtins.h"
#include "text/template/number.h"

namespace baton::text::jinja {
namespace {

enum Owner : uint8_t { kText = 1, kListType = 2, kTupleType = 4, kDictType = 8, kRangeType = 16, kIntType = 32, kFloatType = 64 };
enum class Support : uint8_t {
  kFull,
  kChanges,  // changes its object, which the sandbox forbids
  kNone      // Python has it, this program does not
};

struct Entry {
  std::string_view name;
  uint8_t owners;
  Support support = Support::kFull;
};

constexpr Entry kMethods[] = {
    {"capitalize", kText},
    {"casefold", kText},
    {"center", kText},
    {"encode", kText, Support::kNone},
    {"endswith", kText},
    {"expandtabs", kText},
    {"find", kText},
    {"format", kText},
    {"format_map", kText},
    {"isalnum", kText},
    {"isalpha", kText},
    {"isascii", kText},
    {"isdecimal", kText},
    {"isdigit", kText},
    {"isidentifier", kText, Support::kNone},
    {"islower", kText},
    {"isnumeric", kText},
    {"isprintable", kText},
    {"isspace", kText},
    {"istitle", kText},
    {"isupper", kText},
    {"join", kText},
    {"ljust", kText},
    {"lower", kText},
    {"lstrip", kText},
    {"maketrans", kText, Support::kNone},
    {"partition", kText},
    {"removeprefix", kText},
    {"removesuffix", kText},
    {"replace", kText},
    {"rfind", kText},
    {"rindex", kText},
    {"rjust", kText},
    {"rpartition", kText},
    {"rsplit", kText},
    {"rstrip", kText},
    {"split", kText},
    {"splitlines", kText},
    {"startswith", kText},
    {"strip", kText},
    {"swapcase", kText},
    {"title", kText},
    {"translate", kText, Support::kNone},
    {"upper", kText},
    {"zfill", kText},
    {"count", kText | kListType | kTupleType | kRangeType},
    {"index", kText | kListType | kTupleType | kRangeType},
    {"copy", kListType | kDictType},
    {"get", kDictType},
    {"items", kDictType},
    {"keys", kDictType},
    {"values", kDictType},
    {"fromkeys", kDictType, Support::kNone},
    {"bit_length", kIntType},
    {"is_integer", kFloatType},
    {"append", kListType, Support::kChanges},
    {"extend", kListType, Support::kChanges},
    {"insert", kListType, Support::kChanges},
    {"remove", kListType, Support::kChanges},
    {"reverse", kListType, Support::kChanges},
    {"sort", kListType, Support::kChanges},
    {"clear", kListType | kDictType, Support::kChanges},
    {"pop", kListType | kDictType, Support::kChanges},
    {"popitem", kDictType, Support::kChanges},
    {"setdefault", kDictType, Support::kChanges},
    {"update", kDictType, Support::kChanges},
};

const Entry* find_method(std::string_view name) {
  const auto* at = std::find_if(std::begin(kMethods), std::end(kMethods), [&](const Entry& e) { return e.name == name; });
  return at == std::end(kMethods) ? nullptr : at;
}

uint8_t owner_of(const Value& v) {
  switch (v.type()) {
    case Type::kString: return kText;
    case Type::kDict: return kDictType;
    case Type::kBool:
    case Type::kInt:
    case Type::kBigInt: return kIntType;
    case Type::kFloat: return kFloatType;
    case Type::kList: break;
    default: return 0;
  }
  const List& list = v.as_list();
  if (list.flavour == List::Flavour::kRange) return kRangeType;
  return list.is_tuple() ? kTupleType : list.flavour == List::Flavour::kList ? kListType : 0;
}

Value view_of(RenderState& s, const Dict& dict, List::Flavour flavour) {
  if (!s.room_for(dict.entries.size() * (flavour == List::Flavour::kItems ? 4 : 1))) return s.fail("");
  std::vector<Value> items;
  items.reserve(dict.entries.size());
  for (const auto& [key, value] : dict.entries) {
    if (flavour == List::Flavour::kItems)
      items.push_back(s.list({key, value}, List::Flavour::kTuple));
    else
      items.push_back(flavour == List::Flavour::kKeys ? key : value);
  }
  return s.list(std::move(items), flavour);
}

Value dict_method(RenderState& s, const Value& self, std::string_view name, const Arguments& a) {
  const Dict& dict = self.as_dict();
  if (name == "get") {
    constexpr std::array<std::string_view, 2> kNames = {"key", "default"};
    const auto b = bind_arguments(s, "get", a, kNames, 1);
    if (s.failed()) return b[0];
    if (!hashable(b[0])) return s.fail(fmt::format("unhashable type: '{}'", type_name(b[0])));
    const Value* found = dict.find(b[0]);
    return found != nullptr ? *found : b[1].is_missing() ? Value::none() : b[1];
  }
  bind_arguments(s, name, a, {}, 0);
  if (s.failed()) return Value::undefined("");
  if (name == "items") return view_of(s, dict, List::Flavour::kItems);
  if (name == "keys") return view_of(s, dict, List::Flavour::kKeys);
  if (name == "values") return view_of(s, dict, List::Flavour::kValues);
  return self;  // copy: nothing can change either
}

Value list_method(RenderState& s, const Value& self, std::string_view name, const Arguments& a) {
  if (name == "copy") return self;
  constexpr std::array<std::string_view, 1> kNames = {"value"};
  const auto b = bind_arguments(s, name, a, kNames, 1);
  int64_t count = 0, index = 0;
  for (const Value& v : self.as_list().items) {
    if (s.failed()) return Value::undefined("");
    if (compare(s, "==", v, b[0])) {
      if (name == "index") return Value::integer(index);
      ++count;
    }
    ++index;
  }
  if (name == "index") return s.fail("the value is not in the list");
  return Value::integer(count);
}

}  // namespace

std::string_view method_of(const Value& self, std::string_view name) {
  const uint8_t owner = owner_of(self);
  const Entry* e = owner == 0 ? nullptr : find_method(name);
  return e != nullptr && (e->owners & owner) != 0 ? e->name : std::string_view();
}

bool is_method(std::string_view name) {
  constexpr std::array<std::string_view, 4> kOfHelpers = {"next", "reset", "cycle", "changed"};
  const Entry* e = find_method(name);
  return e != nullptr ? e->support != Support::kNone : std::find(kOfHelpers.begin(), kOfHelpers.end(), name) != kOfHelpers.end();
}

Value call_method(RenderState& s, const Value& self, std::string_view name, const Arguments& a) {
  if (s.failed()) return Value::undefined("");
  if (self.is(Type::kFunction)) return self.as_function().call_method(s, name, a);
  const Entry* e = find_method(name);
  if (e == nullptr || e->support == Support::kNone) return s.fail(fmt::format("the method '{}' is not supported", name));
  if (e->support == Support::kChanges)
    return s.fail(fmt::format("'{}' changes a {}, which templates may not; build a new one with +, or keep it in a namespace", name,
                              type_name(self)));
  switch (self.type()) {
    case Type::kString: return call_text_method(s, self, name, a);
    case Type::kDict: return dict_method(s, self, name, a);
    case Type::kList: return list_method(s, self, name, a);
    case Type::kFloat: return Value::boolean(std::isfinite(self.as_float()) && self.as_float() == std::trunc(self.as_float()));
    default: break;
  }
  const BigInt i = abs(self.to_big());
  return Value::integer(i == 0 ? 0 : static_cast<int64_t>(msb(i)) + 1);
}

}  // namespace baton::text::jinja
