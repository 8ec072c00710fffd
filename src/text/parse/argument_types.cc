#include "text/parse/argument_types.h"

#include <array>

namespace baton::text {
namespace json = boost::json;

namespace {

constexpr int kMostDepth = 32;

JsonKind kind_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null: return JsonKind::kNull;
    case json::kind::bool_: return JsonKind::kBoolean;
    case json::kind::int64:
    case json::kind::uint64: return JsonKind::kInteger;
    case json::kind::double_: return JsonKind::kNumber;
    case json::kind::string: return JsonKind::kString;
    case json::kind::array: return JsonKind::kArray;
    case json::kind::object: return JsonKind::kObject;
  }
  return JsonKind::kNull;
}

}  // namespace

ArgumentType ArgumentType::named(std::string_view type) {
  if (type == "string") return of(JsonKind::kString);
  if (type == "integer") return of(JsonKind::kInteger);
  if (type == "number") return of(JsonKind::kInteger) | of(JsonKind::kNumber);
  if (type == "boolean") return of(JsonKind::kBoolean);
  if (type == "null") return of(JsonKind::kNull);
  if (type == "array") return of(JsonKind::kArray);
  if (type == "object") return of(JsonKind::kObject);
  return none();
}

// Reads one function's schema; `root` is what "#" means in a $ref.
class SchemaTypes {
 public:
  SchemaTypes(const json::value& root, SchemaBudget& budget) : root_(root), budget_(budget) {}

  void collect(const json::value& schema, ToolTypes::Tool& tool, int depth = 0) {
    if (!enter(schema, depth)) return;
    const json::object& object = schema.get_object();
    if (const json::value* properties = object.if_contains("properties"); properties != nullptr && properties->is_object())
      for (const auto& [key, property] : properties->get_object()) {
        if (!take(1 + key.size() / 64)) break;
        const ArgumentType type = of(property, 0);
        const auto [at, is_new] = tool.arguments.try_emplace(std::string(key), type);
        if (!is_new) at->second = at->second | type;
      }
    if (const json::value* others = object.if_contains("additionalProperties"); others != nullptr && others->is_object())
      tool.others = of(*others, 0);
    if (const json::value* target = referenced(object)) collect(*target, tool, depth + 1);
    for (const char* key : {"allOf", "anyOf", "oneOf"})
      if (const json::array* members = list(object, key))
        for (const json::value& member : *members) {
          if (!take()) return;
          collect(member, tool, depth + 1);
        }
  }

  // What keywords say together; anything where they contradict each other, since the text has to become something.
  ArgumentType of(const json::value& schema, int depth) {
    return enter(schema, depth) ? of(schema.get_object(), depth) : ArgumentType::anything();
  }
  ArgumentType of(const json::object& object, int depth) {
    ArgumentType type = ArgumentType::anything();
    if (const json::value* names = object.if_contains("type")) type = type & named(*names);
    if (const json::array* values = list(object, "enum")) {
      ArgumentType kinds = ArgumentType::none();
      for (const json::value& value : *values) {
        if (!take()) return ArgumentType::anything();
        kinds = kinds | ArgumentType::of(kind_of(value));
      }
      type = type & kinds;
    }
    if (const json::value* value = object.if_contains("const")) type = type & ArgumentType::of(kind_of(*value));
    if (const json::value* target = referenced(object)) type = type & of(*target, depth + 1);
    for (const char* key : {"anyOf", "oneOf"})
      if (const json::array* members = list(object, key)) {
        ArgumentType any = ArgumentType::none();
        for (const json::value& member : *members) {
          if (!take()) return ArgumentType::anything();
          any = any | of(member, depth + 1);
        }
        type = type & any;
      }
    if (const json::array* members = list(object, "allOf"))
      for (const json::value& member : *members) {
        if (!take()) return ArgumentType::anything();
        type = type & of(member, depth + 1);
      }
    if (const json::value* nullable = object.if_contains("nullable"); nullable != nullptr && nullable->is_bool() && nullable->get_bool())
      type = type | ArgumentType::of(JsonKind::kNull);
    return type.is_none() ? ArgumentType::anything() : type;
  }

 private:
  ArgumentType named(const json::value& names) {
    ArgumentType type = ArgumentType::none();
    if (names.is_string()) type = ArgumentType::named(names.get_string());
    if (names.is_array())
      for (const json::value& name : names.get_array()) {
        if (!take()) return ArgumentType::anything();
        if (name.is_string()) type = type | ArgumentType::named(name.get_string());
      }
    return type.is_none() ? ArgumentType::anything() : type;
  }

  bool enter(const json::value& schema, int depth) { return schema.is_object() && depth < kMostDepth && --budget_.steps > 0; }

  // Whether another `items` may be looked at.
  bool take(size_t items = 1) { return (budget_.items -= static_cast<int64_t>(items)) > 0; }

  static const json::array* list(const json::object& object, std::string_view key) {
    const json::value* value = object.if_contains(key);
    return value == nullptr ? nullptr : value->if_array();
  }

  const json::value* referenced(const json::object& object) {
    const json::value* reference = object.if_contains("$ref");
    if (reference == nullptr || !reference->is_string()) return nullptr;
    const std::string_view pointer = reference->get_string();
    if (!pointer.starts_with('#') || !take(1 + pointer.size() / 64)) return nullptr;
    boost::system::error_code failed;
    return root_.find_pointer(pointer.substr(1), failed);
  }

  const json::value& root_;
  SchemaBudget& budget_;
};

void ToolTypes::add(std::string_view name, const json::value& parameters) {
  Tool tool;
  SchemaBudget budget;
  SchemaTypes(parameters, budget).collect(parameters, tool);
  tools_.insert_or_assign(std::string(name), std::move(tool));
}

ArgumentType ToolTypes::of(const json::object& schema, const json::value& root, SchemaBudget& budget) {
  return SchemaTypes(root, budget).of(schema, 0);
}

ArgumentType ToolTypes::type(std::string_view tool, std::string_view argument) const {
  const auto at = tools_.find(tool);
  if (at == tools_.end()) return ArgumentType::anything();
  const auto known = at->second.arguments.find(argument);
  return known == at->second.arguments.end() ? at->second.others : known->second;
}

}  // namespace baton::text
