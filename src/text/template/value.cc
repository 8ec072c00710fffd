#include "text/template/value.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "text/template/function.h"
#include "text/template/meter.h"

namespace baton::text::jinja {
namespace {

constexpr size_t kIndexFrom = 12;  // entries of a dict that are searched one by one

struct BigIntObject : Object {
  explicit BigIntObject(BigInt v) : value(std::move(v)) {}
  BigInt value;
};

}  // namespace

Value Value::scalar(Type type, bool untrusted) {
  Value v;
  v.type_ = type;
  v.untrusted_ = untrusted;
  return v;
}

Value Value::undefined(std::string_view why) {
  Value v = scalar(Type::kUndefined, false);
  auto buffer = std::make_shared<TextBuffer>();
  buffer->bytes = why;
  v.object_ = std::move(buffer);
  return v;
}

Value Value::boolean(bool b, bool untrusted) {
  Value v = scalar(Type::kBool, untrusted);
  v.bits_ = b ? 1 : 0;
  return v;
}

Value Value::integer(int64_t i, bool untrusted) {
  Value v = scalar(Type::kInt, untrusted);
  v.bits_ = i;
  return v;
}

Value Value::integer(const BigInt& i, bool untrusted) {
  if (i >= std::numeric_limits<int64_t>::min() && i <= std::numeric_limits<int64_t>::max())
    return integer(static_cast<int64_t>(i), untrusted);
  Value v = scalar(Type::kBigInt, untrusted);
  v.object_ = std::make_shared<BigIntObject>(i);
  return v;
}

Value Value::real(double d, bool untrusted) {
  Value v = scalar(Type::kFloat, untrusted);
  v.bits_ = std::bit_cast<int64_t>(d);
  return v;
}

Value::Value(Text text) : type_(Type::kString) {
  bits_ = static_cast<int64_t>(uint64_t{text.end()} << 32 | text.begin());
  object_ = text.buffer();
}
Value::Value(std::shared_ptr<List> list) : object_(std::move(list)), type_(Type::kList) {}
Value::Value(std::shared_ptr<Dict> dict) : object_(std::move(dict)), type_(Type::kDict) {}
Value::Value(std::shared_ptr<Iterator> iterator) : object_(std::move(iterator)), type_(Type::kIterator) {}
Value::Value(std::shared_ptr<Namespace> names) : object_(std::move(names)), type_(Type::kNamespace) {}
Value::Value(std::shared_ptr<Function> function) : object_(std::move(function)), type_(Type::kFunction) {}

double Value::as_float() const { return std::bit_cast<double>(bits_); }
const BigInt& Value::as_big() const { return static_cast<const BigIntObject&>(*object_).value; }
BigInt Value::to_big() const { return type_ == Type::kBigInt ? as_big() : BigInt(bits_); }

double Value::to_float() const {
  if (type_ == Type::kFloat) return as_float();
  if (type_ == Type::kBigInt) return as_big().convert_to<double>();
  return static_cast<double>(bits_);
}

Text Value::as_text() const {
  BATON_CHECK(type_ == Type::kString);
  const auto packed = static_cast<uint64_t>(bits_);
  return {std::static_pointer_cast<TextBuffer>(object_), static_cast<uint32_t>(packed), static_cast<uint32_t>(packed >> 32)};
}

std::string_view Value::view() const {
  BATON_CHECK(type_ == Type::kString);
  if (object_ == nullptr) return {};
  const auto packed = static_cast<uint64_t>(bits_);
  const auto begin = static_cast<uint32_t>(packed), end = static_cast<uint32_t>(packed >> 32);
  return std::string_view(static_cast<const TextBuffer&>(*object_).bytes).substr(begin, end - begin);
}

List& Value::as_list() const { return static_cast<List&>(*object_); }
Dict& Value::as_dict() const { return static_cast<Dict&>(*object_); }
Iterator& Value::as_iterator() const { return static_cast<Iterator&>(*object_); }
Namespace& Value::as_namespace() const { return static_cast<Namespace&>(*object_); }
Function& Value::as_function() const { return static_cast<Function&>(*object_); }
std::string Value::why() const { return static_cast<const TextBuffer&>(*object_).bytes; }

Value Value::with_markup(bool markup) const {
  Value v = *this;
  v.markup_ = markup;
  return v;
}

int Value::depth() const {
  switch (type_) {
    case Type::kList: return as_list().depth;
    case Type::kDict: return as_dict().depth;
    case Type::kIterator: return as_iterator().depth;
    case Type::kFunction: return as_function().depth;
    case Type::kNamespace: return 1;  // each is held by the rendering, so that chains of them come apart one by one
    default: return 0;
  }
}

int64_t Value::weight() const {
  switch (type_) {
    case Type::kString: return 1 + static_cast<int64_t>(view().size() / 32);
    case Type::kList: return as_list().weight;
    case Type::kDict: return as_dict().weight;
    case Type::kIterator: return as_iterator().weight;
    case Type::kFunction: return as_function().weight;
    default: return 1;
  }
}

bool truth(const Value& v) {
  switch (v.type()) {
    case Type::kMissing:
    case Type::kUndefined:
    case Type::kNone: return false;
    case Type::kBool:
    case Type::kInt: return v.as_int() != 0;
    case Type::kFloat: return v.as_float() != 0;
    case Type::kString: return !v.view().empty();
    case Type::kList: return !v.as_list().items.empty();
    case Type::kDict: return !v.as_dict().entries.empty();
    case Type::kBigInt:
    case Type::kIterator:
    case Type::kNamespace:
    case Type::kFunction: return true;
  }
  return false;
}

std::string type_name(const Value& v) {
  switch (v.type()) {
    case Type::kMissing:
    case Type::kUndefined: return "Undefined";
    case Type::kNone: return "None";
    case Type::kBool: return "bool";
    case Type::kInt:
    case Type::kBigInt: return "int";
    case Type::kFloat: return "float";
    case Type::kString: return "str";
    case Type::kDict: return "dict";
    case Type::kIterator: return "generator";
    case Type::kNamespace: return "namespace";
    case Type::kFunction: return "function";
    case Type::kList: break;
  }
  switch (v.as_list().flavour) {
    case List::Flavour::kList: return "list";
    case List::Flavour::kGroup:
    case List::Flavour::kTuple: return "tuple";
    case List::Flavour::kKeys: return "dict_keys";
    case List::Flavour::kValues: return "dict_values";
    case List::Flavour::kItems: return "dict_items";
    case List::Flavour::kRange: return "range";
  }
  return "list";
}

// Exact also where one of both is a whole number that no double holds.
static bool equal_numbers(const Value& a, const Value& b) {
  if (a.is(Type::kFloat) && b.is(Type::kFloat)) return a.as_float() == b.as_float();
  if (!a.is(Type::kFloat) && !b.is(Type::kFloat))
    return a.is(Type::kBigInt) == b.is(Type::kBigInt) && (a.is(Type::kBigInt) ? a.as_big() == b.as_big() : a.as_int() == b.as_int());
  const Value& real = a.is(Type::kFloat) ? a : b;
  const Value& whole = a.is(Type::kFloat) ? b : a;
  const double d = real.as_float();
  return std::isfinite(d) && d == std::trunc(d) && BigInt(d) == whole.to_big();
}

bool equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) return equal_numbers(a, b);
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::kMissing:
    case Type::kUndefined:
    case Type::kNone: return true;
    case Type::kString: return a.view() == b.view();
    case Type::kList: {
      const List &x = a.as_list(), &y = b.as_list();
      if (&x == &y) return true;
      const bool comparable = x.flavour == y.flavour || (x.is_tuple() && y.is_tuple());
      if (!comparable || x.flavour == List::Flavour::kValues) return false;
      return std::equal(x.items.begin(), x.items.end(), y.items.begin(), y.items.end(), equal);
    }
    case Type::kDict: {
      const Dict &x = a.as_dict(), &y = b.as_dict();
      if (&x == &y) return true;
      if (x.entries.size() != y.entries.size()) return false;
      return std::all_of(x.entries.begin(), x.entries.end(), [&](const auto& entry) {
        const Value* other = y.find(entry.first);
        return other != nullptr && equal(entry.second, *other);
      });
    }
    default: return a.same_object(b);
  }
}

bool hashable(const Value& v) {
  if (v.is(Type::kDict) || v.is(Type::kNamespace)) return false;
  if (!v.is(Type::kList)) return true;
  const List& list = v.as_list();
  if (list.flavour == List::Flavour::kRange) return true;
  if (list.weight > 1'000'000) return false;
  return list.is_tuple() && std::all_of(list.items.begin(), list.items.end(), hashable);
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find(key.view());
  if (meter() != nullptr) meter()->take_steps(static_cast<int64_t>(entries.size() / 4));
  for (const auto& [k, v] : entries)
    if (equal(k, key)) return &v;
  return nullptr;
}

const Value* Dict::find(std::string_view key) const {
  if (entries.size() < kIndexFrom) {
    for (const auto& [k, v] : entries)
      if (k.is_string() && k.view() == key) return &v;
    return nullptr;
  }
  const auto at = index_.find(key);
  return at == index_.end() ? nullptr : &entries[*at].second;
}

void Dict::set(const Value& key, const Value& value) {
  hold(key);
  hold(value);
  if (const Value* old = find(key); old != nullptr) {
    const_cast<Value&>(*old) = value;
    return;
  }
  entries.emplace_back(key, value);
  charge(sizeof entries.back() * 2);
  if (entries.size() < kIndexFrom) return;
  for (size_t i = index_.empty() ? 0 : entries.size() - 1; i < entries.size(); ++i)
    if (entries[i].first.is_string()) index_.insert(static_cast<uint32_t>(i));
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [n, v] : attributes)
    if (n == name) return &v;
  return nullptr;
}

}  // namespace baton::text::jinja
