// The values that templates compute with: those of Python that chat templates meet.
#pragma once

#include <boost/json/value.hpp>
#include <boost/multiprecision/cpp_int.hpp>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/template/tagged_text.h"

namespace baton::text::jinja {

using BigInt = boost::multiprecision::cpp_int;

enum class Type : uint8_t {
  kMissing,    // no value at all: an argument not given, a variable not set. Never seen by a template.
  kUndefined,  // what an unknown name stands for
  kNone,
  kBool,
  kInt,     // 64 bits
  kBigInt,  // beyond 64 bits
  kFloat,
  kString,
  kList,      // of any flavour
  kDict,      //
  kIterator,  // can be walked once
  kNamespace,
  kFunction  // whatever can be called, and loop objects
};

struct List;
struct Dict;
struct Iterator;
struct Namespace;
struct Function;

// 32 bytes; copies share what lies on the heap. The origin of a number, truth value or none that came straight from messages, or was
// computed from such a number, is kept in the value; that of text in the text.
class Value {
 public:
  Value() = default;  // missing
  static Value undefined(std::string_view why);
  static Value none(bool untrusted = false) { return scalar(Type::kNone, untrusted); }
  static Value boolean(bool b, bool untrusted = false);
  static Value integer(int64_t i, bool untrusted = false);
  static Value integer(const BigInt& i, bool untrusted = false);  // of any size
  static Value real(double d, bool untrusted = false);
  Value(Text text);                           // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<List> list);          // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<Dict> dict);          // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<Iterator> iterator);  // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<Namespace> names);    // NOLINT(google-explicit-constructor)
  Value(std::shared_ptr<Function> function);  // NOLINT(google-explicit-constructor)
  static Value text(std::string_view bytes) { return Text::of(bytes); }

  Type type() const { return type_; }
  bool is(Type t) const { return type_ == t; }
  bool is_missing() const { return type_ == Type::kMissing; }
  bool is_undefined() const { return type_ == Type::kUndefined; }
  bool is_none() const { return type_ == Type::kNone; }
  bool is_string() const { return type_ == Type::kString; }
  bool is_integer() const { return type_ == Type::kInt || type_ == Type::kBigInt; }                 // without truth values
  bool is_number() const { return is_integer() || type_ == Type::kFloat || type_ == Type::kBool; }  // as Python's numbers
  bool is_whole() const { return is_integer() || type_ == Type::kBool; }

  bool as_bool() const { return bits_ != 0; }  // of kBool
  int64_t as_int() const { return bits_; }     // of kInt and kBool
  double as_float() const;                     // of kFloat
  const BigInt& as_big() const;                // of kBigInt
  BigInt to_big() const;                       // of whole numbers
  double to_float() const;                     // of numbers
  Text as_text() const;                        // of kString
  std::string_view view() const;               // of kString; valid as long as the value
  List& as_list() const;
  Dict& as_dict() const;
  Iterator& as_iterator() const;
  Namespace& as_namespace() const;
  Function& as_function() const;
  std::string why() const;  // of kUndefined: what is undefined

  // Text made HTML-safe by a filter: `+` escapes what is added to it.
  bool markup() const { return markup_; }
  Value with_markup(bool markup) const;
  // Of scalars.
  bool untrusted() const { return untrusted_; }
  // The same object on the heap.
  bool same_object(const Value& o) const { return object_ == o.object_; }
  const Object* object() const { return object_.get(); }
  // How many containers lie inside each other here; 0 for scalars and text.
  int depth() const;
  // Steps that it takes to walk all that can be reached from here. A value that is reached twice counts twice: small ones can be woven
  // into lists that take forever to walk.
  int64_t weight() const;

 private:
  static Value scalar(Type type, bool untrusted);
  std::shared_ptr<Object> object_;
  int64_t bits_ = 0;  // the number, or where a text begins and ends
  Type type_ = Type::kMissing;
  bool untrusted_ = false, markup_ = false;
};

// Equality of Python: 1 == 1.0 == True.
bool equal(const Value& a, const Value& b);
// Whether Python takes it as a key.
bool hashable(const Value& v);

struct Container : Object {
  using Object::Object;
  int depth = 1;
  int64_t weight = 1;  // see Value::weight
  void hold(const Value& v) {
    depth = std::max(depth, 1 + v.depth());
    weight = std::min(weight + v.weight(), kMostWeight);
  }
  static constexpr int64_t kMostWeight = int64_t{1} << 40;
};

struct List : Container {
  enum class Flavour : uint8_t { kList, kTuple, kKeys, kValues, kItems, kRange, kGroup };
  using Container::Container;
  std::vector<Value> items;
  Flavour flavour = Flavour::kList;
  int64_t range[3] = {0, 0, 1};  // of kRange: as it was asked for

  bool indexable() const { return flavour == Flavour::kList || is_tuple() || flavour == Flavour::kRange; }
  bool is_tuple() const { return flavour == Flavour::kTuple || flavour == Flavour::kGroup; }
};

// Keeps the order of insertion.
struct Dict : Container {
  using Container::Container;
  std::vector<std::pair<Value, Value>> entries;

  const Value* find(const Value& key) const;
  const Value* find(std::string_view key) const;
  void set(const Value& key, const Value& value);  // replaces the value of an equal key

 private:
  // Entries with text as key, in the order of their text: a tree, because anyone may choose the keys of messages, and so their hashes.
  struct ByText {
    using is_transparent = void;
    const Dict* dict;
    std::string_view text(uint32_t i) const { return dict->entries[i].first.view(); }
    bool operator()(uint32_t a, uint32_t b) const { return text(a) < text(b); }
    bool operator()(uint32_t a, std::string_view b) const { return text(a) < b; }
    bool operator()(std::string_view a, uint32_t b) const { return a < text(b); }
  };
  std::set<uint32_t, ByText> index_{ByText{this}};
};

struct Iterator : Container {
  using Container::Container;
  std::vector<Value> items;
  size_t next = 0;
};

// The one thing that a template may change.
struct Namespace : Object {
  using Object::Object;
  std::vector<std::pair<std::string, Value>> attributes;
  const Value* find(std::string_view name) const;
};

// The names that Python gives to the types; for messages.
std::string type_name(const Value& v);
bool truth(const Value& v);

// From JSON, outside of any meter. Every text and number gets the origin given. Objects keep their order.
Value from_json(const boost::json::value& json, bool untrusted);
// The same from text, and exact: whole numbers of any size, floats by the nearest value. `where` names the text in messages.
Result<Value> parse_json(std::string_view text, bool untrusted, const std::string& where);

}  // namespace baton::text::jinja
