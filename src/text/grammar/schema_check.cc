#include "text/grammar/schema_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <vector>

#include "text/parse/argument_types.h"

namespace baton::text {
namespace json = boost::json;

namespace {

constexpr int kMostDepth = 64;
constexpr size_t kMostSchemas = 20000;
constexpr int64_t kMostCount = 1000000;  // lengths and numbers of items
constexpr size_t kMostPatternBytes = 8192;
constexpr int kMostPasses = 64;

constexpr std::array<std::string_view, 6> kDeciders = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};
constexpr std::array<std::string_view, 15> kUnknown = {"not",
                                                       "if",
                                                       "then",
                                                       "else",
                                                       "dependentRequired",
                                                       "dependencies",
                                                       "contains",
                                                       "minContains",
                                                       "maxContains",
                                                       "dependentSchemas",
                                                       "$dynamicRef",
                                                       "$recursiveRef",
                                                       "additionalItems",
                                                       "unevaluatedItems",
                                                       "unevaluatedProperties"};
constexpr std::array<std::string_view, 4> kOfString = {"minLength", "maxLength", "pattern", "format"};
constexpr std::array<std::string_view, 5> kOfNumber = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
constexpr std::array<std::string_view, 5> kOfArray = {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"};
constexpr std::array<std::string_view, 7> kOfObject = {"properties",    "required",          "additionalProperties", "minProperties",
                                                       "maxProperties", "patternProperties", "propertyNames"};
constexpr std::array<std::string_view, 6> kCounts = {"minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"};

template <size_t N>
const std::string_view* first_of(const json::object& schema, const std::array<std::string_view, N>& keys) {
  const auto at = std::find_if(keys.begin(), keys.end(), [&](std::string_view key) { return schema.contains(key); });
  return at == keys.end() ? nullptr : &*at;
}

class SchemaCheck {
 public:
  SchemaCheck(const json::value& root, const std::string& where) : root_(root), where_(where) {}

  Status run() {
    BATON_TRY(visit(root_, "", 0));
    while (!referenced_.empty()) {
      const auto [target, path] = std::move(referenced_.back());
      referenced_.pop_back();
      BATON_TRY(visit(*target, path, 0));
    }
    for (size_t i = 0; i < nodes_.size(); ++i)
      if (!ends(i)) return wrong("", "refers to itself in a circle, without anything in between");
    return check_finite();
  }

 private:
  struct Node {
    const json::object* schema = nullptr;
    enum class Mark : uint8_t { kNew, kOpen, kDone } mark = Mark::kNew;
    bool finite = false;
  };

  Error wrong(const std::string& path, const std::string& what, Error::Kind kind = Error::Kind::kInvalid) const {
    return {kind, fmt::format("{}: {} {}", where_, path.empty() ? "the schema" : "#" + path, what)};
  }
  Error unsupported(const std::string& path, const std::string& what) const { return wrong(path, what, Error::Kind::kUnsupported); }

  Status visit(const json::value& value, const std::string& path, int depth) {
    if (value.is_bool())
      return value.get_bool() || path.ends_with("additionalProperties") || path.ends_with("items")
                 ? Status()
                 : Status(wrong(path, "is false: nothing satisfies it"));
    if (!value.is_object()) return wrong(path, "is neither an object nor a boolean");
    const json::object& schema = value.get_object();
    if (index_.contains(&schema)) return {};
    if (depth > kMostDepth) return wrong(path, fmt::format("is nested deeper than {} levels", kMostDepth), Error::Kind::kExhausted);
    if (nodes_.size() >= kMostSchemas) return wrong("", fmt::format("has more than {} parts", kMostSchemas), Error::Kind::kExhausted);
    index_.emplace(&schema, nodes_.size());
    nodes_.push_back({&schema});
    if (const auto* key = first_of(schema, kUnknown)) return unsupported(path, fmt::format("uses '{}', which output is not held to", *key));
    BATON_TRY(check_decider(schema, path));
    BATON_TRY(check_assertions(schema, path));
    BATON_TRY(check_bounds(schema, path));
    return visit_parts(schema, path, depth);
  }

  // One keyword decides; what stands beside it has to say nothing more.
  Status check_decider(const json::object& schema, const std::string& path) {
    const auto* decider = first_of(schema, kDeciders);
    if (decider == nullptr) return {};
    const auto beside = [&](std::string_view key) {
      return unsupported(path, fmt::format("has '{}' beside '{}', and output would not be held to both; merge them", key, *decider));
    };
    for (const std::string_view key : kDeciders)
      if (key != *decider && schema.contains(key)) return beside(key);
    if (*decider == "allOf" && schema.at("allOf").is_array() && schema.at("allOf").get_array().size() != 1)
      return unsupported(path, "has an allOf of several schemas, and output would be held to one; merge them");
    for (const auto* key :
         {first_of(schema, kOfString), first_of(schema, kOfNumber), first_of(schema, kOfArray), first_of(schema, kOfObject)})
      if (key != nullptr) return beside(*key);
    const json::value* type = schema.if_contains("type");
    if (type == nullptr) return {};
    if (*decider == "const") return says_type(schema.at("const"), *type) ? Status() : Status(beside("type"));
    if (!schema.at(*decider).is_array()) return referenced_type(schema.at(*decider), *type) ? Status() : Status(beside("type"));
    for (const json::value& option : schema.at(*decider).get_array()) {
      const bool agrees = *decider == "enum" ? says_type(option, *type) : option_type(option, *type);
      if (!agrees) return beside("type");
    }
    return {};
  }

  // Whether `value` is of a type that `type` names.
  static bool says_type(const json::value& value, const json::value& type) {
    const auto is = [&](const json::value& name) {
      if (!name.is_string()) return false;
      const std::string_view n = name.get_string();
      return (n == "string" && value.is_string()) || (n == "null" && value.is_null()) || (n == "boolean" && value.is_bool()) ||
             (n == "array" && value.is_array()) || (n == "object" && value.is_object()) || (n == "number" && value.is_number()) ||
             (n == "integer" && (value.is_int64() || value.is_uint64()));
    };
    return type.is_array() ? std::any_of(type.get_array().begin(), type.get_array().end(), is) : is(type);
  }
  // Whether a schema says the very type that stands beside the keyword that leads to it.
  bool option_type(const json::value& option, const json::value& type) const {
    if (!option.is_object()) return false;
    if (const json::value* own = option.get_object().if_contains("type"))
      return *own == type || (type.is_array() && std::count(type.get_array().begin(), type.get_array().end(), *own) > 0);
    const json::value* reference = option.get_object().if_contains("$ref");
    return reference != nullptr && referenced_type(*reference, type);
  }
  bool referenced_type(const json::value& reference, const json::value& type) const {
    if (!reference.is_string()) return false;
    const json::value* target = find(reference.get_string());
    return target != nullptr && target->is_object() && !target->get_object().contains("$ref") && option_type(*target, type);
  }

  Status check_assertions(const json::object& schema, const std::string& path) {
    if (const json::value* unique = schema.if_contains("uniqueItems"); unique != nullptr && (!unique->is_bool() || unique->get_bool()))
      return unsupported(path, "uses 'uniqueItems', which output is not held to");
    if (schema.contains("multipleOf") &&
        (!says("integer", schema) ||
         first_of(schema, std::array<std::string_view, 4>{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) != nullptr))
      return unsupported(path, "uses 'multipleOf' other than alone on an integer; output is not held to it");
    int kinds = 0;
    kinds += schema.contains("pattern") ? 1 : 0;
    kinds += schema.contains("format") ? 1 : 0;
    kinds += schema.contains("minLength") || schema.contains("maxLength") ? 1 : 0;
    if (kinds > 1) return unsupported(path, "has more than one of pattern, format and a length, and output would be held to one of them");
    if (first_of(schema, kDeciders) != nullptr || schema.contains("type")) return {};
    // Without a type, properties mean an object and items an array; other keywords would be passed over.
    if (schema.contains("properties") || schema.contains("additionalProperties") || schema.contains("items") ||
        schema.contains("prefixItems"))
      return {};
    for (const auto* key :
         {first_of(schema, kOfString), first_of(schema, kOfNumber), first_of(schema, kOfArray), first_of(schema, kOfObject)})
      if (key != nullptr)
        return unsupported(path, fmt::format("has '{}' without a type, and output would not be held to it; add the type", *key));
    return {};
  }

  static bool says(std::string_view type, const json::object& schema) {
    const json::value* t = schema.if_contains("type");
    return t != nullptr && t->is_string() && t->get_string() == type;
  }

  Status check_bounds(const json::object& schema, const std::string& path) {
    for (const std::string_view key : kCounts)
      if (const json::value* count = schema.if_contains(key)) {
        const int64_t* n = count->if_int64();
        if (n == nullptr || *n < 0) return wrong(path, fmt::format("has a '{}' that is not a whole number from 0", key));
        if (*n > kMostCount)
          return wrong(path, fmt::format("has a '{}' of {}, and may have {}", key, *n, kMostCount), Error::Kind::kExhausted);
      }
    for (const std::string_view key : kOfNumber)
      if (const json::value* bound = schema.if_contains(key); bound != nullptr && !bound->is_number())
        return wrong(path, fmt::format("has a '{}' that is not a number", key));
    for (const std::string_view key : {"pattern", "format"})
      if (const json::value* text = schema.if_contains(key); text != nullptr && !text->is_string())
        return wrong(path, fmt::format("has a '{}' that is not a string", key));
    if (const json::value* pattern = schema.if_contains("pattern"); pattern != nullptr && pattern->get_string().size() > kMostPatternBytes)
      return wrong(path, fmt::format("has a pattern of more than {} bytes", kMostPatternBytes), Error::Kind::kExhausted);
    if (const json::value* required = schema.if_contains("required")) {
      if (!required->is_array()) return wrong(path, "has a 'required' that is not a list");
      for (const json::value& name : required->get_array())
        if (!name.is_string()) return wrong(path, "has a 'required' that is not a list of strings");
    }
    return {};
  }

  Status visit_parts(const json::object& schema, const std::string& path, int depth) {
    for (const char* key : {"properties", "patternProperties", "$defs", "definitions"})
      if (const json::value* parts = schema.if_contains(key)) {
        if (!parts->is_object()) return wrong(path, fmt::format("has '{}' that are not an object", key));
        for (const auto& [name, part] : parts->get_object())
          BATON_TRY(visit(part, fmt::format("{}/{}/{}", path, key, std::string_view(name)), depth + 1));
      }
    for (const char* key : {"items", "additionalProperties", "propertyNames"})
      if (const json::value* part = schema.if_contains(key)) BATON_TRY(visit(*part, fmt::format("{}/{}", path, key), depth + 1));
    for (const char* key : {"anyOf", "oneOf", "allOf", "prefixItems"})
      if (const json::value* parts = schema.if_contains(key)) {
        if (!parts->is_array() || parts->get_array().empty())
          return wrong(path, fmt::format("has '{}' that is not a list of schemas", key));
        int i = 0;
        for (const json::value& part : parts->get_array()) BATON_TRY(visit(part, fmt::format("{}/{}/{}", path, key, i++), depth + 1));
      }
    if (const json::value* reference = schema.if_contains("$ref")) {
      if (!reference->is_string()) return wrong(path, "has a '$ref' that is not a string");
      const std::string_view pointer = reference->get_string();
      const json::value* target = find(pointer);
      if (target == nullptr)
        return wrong(path, fmt::format("refers to '{}', which is not in it (references have the form #/$defs/NAME)", pointer));
      // It may lie where no keyword leads. Later, since references lead on for as long as a client likes.
      referenced_.emplace_back(target, pointer.substr(1));
    }
    return {};
  }

  // As the library does it: by the names of members only, nothing escaped.
  const json::value* find(std::string_view pointer) const {
    if (!pointer.starts_with('#') || pointer.find_first_of("~%") != std::string_view::npos) return nullptr;
    pointer.remove_prefix(1);
    const json::value* at = &root_;
    while (!pointer.empty()) {
      if (pointer.front() != '/' || !at->is_object()) return nullptr;
      const size_t end = std::min(pointer.find('/', 1), pointer.size());
      if (end == 1) return nullptr;
      at = at->get_object().if_contains(pointer.substr(1, end - 1));
      if (at == nullptr) return nullptr;
      pointer.remove_prefix(end);
    }
    return at;
  }

  // The schemas that a value has to satisfy (all or any of them) to satisfy this one.
  std::vector<size_t> same_value(const json::object& schema) const {
    std::vector<size_t> result;
    const auto add = [&](const json::value* value) {
      if (value != nullptr && value->is_object()) result.push_back(index_.at(&value->get_object()));
    };
    if (const json::value* reference = schema.if_contains("$ref")) add(find(reference->get_string()));
    for (const char* key : {"anyOf", "oneOf", "allOf"})
      if (const json::value* parts = schema.if_contains(key))
        for (const json::value& part : parts->get_array()) add(&part);
    return result;
  }

  // No circle of references begins here. Without recursion: chains may be as long as the schema.
  bool ends(size_t start) {
    std::vector<std::pair<size_t, std::vector<size_t>>> path;
    const auto open = [&](size_t node) {
      nodes_[node].mark = Node::Mark::kOpen;
      path.emplace_back(node, same_value(*nodes_[node].schema));
    };
    if (nodes_[start].mark == Node::Mark::kNew) open(start);
    while (!path.empty()) {
      auto& [node, next] = path.back();
      if (next.empty()) {
        nodes_[node].mark = Node::Mark::kDone;
        path.pop_back();
        continue;
      }
      const size_t to = next.back();
      next.pop_back();
      if (nodes_[to].mark == Node::Mark::kOpen) return false;
      if (nodes_[to].mark == Node::Mark::kNew) open(to);
    }
    return true;
  }

  // Whether some finite value satisfies the whole: a schema that requires itself inside itself has none.
  Status check_finite() {
    bool changed = true;
    for (int pass = 0; changed && pass < kMostPasses; ++pass) {
      changed = false;
      for (size_t i = nodes_.size(); i-- > 0;)
        if (!nodes_[i].finite && finite(*nodes_[i].schema)) changed = nodes_[i].finite = true;
    }
    if (changed) return wrong("", "refers on and on; reorder its definitions", Error::Kind::kExhausted);
    if (!nodes_.empty() && !nodes_[0].finite) return wrong("", "requires itself inside of itself: no finite value satisfies it");
    return {};
  }

  bool finite(const json::value* value) const {
    return value == nullptr || !value->is_object() || nodes_[index_.at(&value->get_object())].finite;
  }
  bool finite(const json::object& schema) const {
    if (const json::value* reference = schema.if_contains("$ref")) return finite(find(reference->get_string()));
    if (schema.contains("const") || schema.contains("enum")) return true;
    const auto is_finite = [this](const json::value& part) { return finite(&part); };
    for (const char* key : {"anyOf", "oneOf"})
      if (const json::value* parts = schema.if_contains(key))
        return std::any_of(parts->get_array().begin(), parts->get_array().end(), is_finite);
    if (const json::value* parts = schema.if_contains("allOf"))
      return std::all_of(parts->get_array().begin(), parts->get_array().end(), is_finite);
    // With a choice of types the simplest may do.
    if (const json::value* type = schema.if_contains("type"); type != nullptr && type->is_array() && type->get_array().size() > 1)
      return true;
    const json::value* properties = schema.if_contains("properties");
    if (const json::value* required = schema.if_contains("required"))
      for (const json::value& name : required->get_array()) {
        const json::value* property = properties == nullptr ? nullptr : properties->get_object().if_contains(name.get_string());
        if (!finite(property != nullptr ? property : schema.if_contains("additionalProperties"))) return false;
      }
    if (const json::value* prefix = schema.if_contains("prefixItems"))
      if (!std::all_of(prefix->get_array().begin(), prefix->get_array().end(), is_finite)) return false;
    const json::value* least = schema.if_contains("minItems");
    return least == nullptr || least->get_int64() == 0 || finite(schema.if_contains("items"));
  }

  const json::value& root_;
  const std::string& where_;
  std::vector<Node> nodes_;
  std::vector<std::pair<const json::value*, std::string>> referenced_;  // not visited yet
  std::unordered_map<const json::object*, size_t> index_;
};

}  // namespace

Status check_schema(const json::value& schema, const std::string& where) { return SchemaCheck(schema, where).run(); }

}  // namespace baton::text
