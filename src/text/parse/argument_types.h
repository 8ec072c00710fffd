// What the functions of a request say about the types of their arguments.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "text/parse/json_check.h"

namespace baton::text {

// The JSON kinds that a schema lets through.
class ArgumentType {
 public:
  static ArgumentType none() { return ArgumentType(0); }
  static ArgumentType anything() { return ArgumentType(kAll); }
  static ArgumentType of(JsonKind kind) { return ArgumentType(bit(kind)); }
  static ArgumentType named(std::string_view type);  // a word of `type`; none for words that JSON Schema does not know

  bool has(JsonKind kind) const { return (bits_ & bit(kind)) != 0; }
  bool is_anything() const { return bits_ == kAll; }
  bool is_none() const { return bits_ == 0; }
  bool operator==(const ArgumentType&) const = default;
  ArgumentType operator|(ArgumentType other) const { return ArgumentType(bits_ | other.bits_); }
  ArgumentType operator&(ArgumentType other) const { return ArgumentType(bits_ & other.bits_); }

 private:
  static constexpr uint32_t kAll = 0x7F;
  static constexpr uint32_t bit(JsonKind kind) { return 1U << static_cast<uint32_t>(kind); }
  explicit ArgumentType(uint32_t bits) : bits_(bits) {}
  uint32_t bits_;
};

// What reading the schemas of a request may cost. Who reads several schemas for one client shares it among them.
struct SchemaBudget {
  int steps = 20'000;
  // Properties, values and names looked at, and every 64 bytes of a key or a reference: one step may lead to many of them.
  int64_t items = 1'000'000;
  bool exhausted() const { return steps <= 0 || items <= 0; }
};

// The functions that a request offers. Immutable once filled; parsers of several choices may share it.
class ToolTypes {
 public:
  // `parameters` is the JSON schema of the arguments, null where there is none. Schemas are followed through $ref (inside the schema),
  // allOf, anyOf and oneOf, to a bounded depth and number of steps; what lies beyond counts as untyped.
  void add(std::string_view name, const boost::json::value& parameters);

  bool empty() const { return tools_.empty(); }
  // Anything, for functions and arguments that no schema describes.
  ArgumentType type(std::string_view tool, std::string_view argument) const;
  // The type that a schema gives to a value; `root` is where its references lead from. Anything where the budget ends.
  static ArgumentType of(const boost::json::object& schema, const boost::json::value& root, SchemaBudget& budget);

 private:
  struct Tool {
    std::map<std::string, ArgumentType, std::less<>> arguments;
    ArgumentType others = ArgumentType::anything();
  };
  friend class SchemaTypes;
  std::map<std::string, Tool, std::less<>> tools_;
};

}  // namespace baton::text
