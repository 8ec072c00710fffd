#include "text/random_schema.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>
#include <regex>

#include "text/utf8.h"

namespace baton::text {
namespace json = boost::json;

namespace {

constexpr const char* kPatterns[] = {"^[a-z]{2,6}$",     "^(ab|c)+$",  "^\\d{1,3}-\\d{2}$", "^[^\"\\\\]{0,4}$", "^.{1,5}$",
                                     "^[\\w.]+@[a-z]+$", "^\"?x\\\\$", "^[ -~\\n]{2,4}$",   "^(\\S+ ?){1,3}$",  "^[^a-z]?\\W$"};

int64_t characters(std::string_view text) {
  int64_t n = 0;
  for (const char c : text) n += is_continuation(c) ? 0 : 1;
  return n;
}

constexpr const char* kFormats[] = {"date", "time", "date-time", "email", "uuid", "ipv4", "ipv6", "uri", "hostname", "duration", "color"};

std::wstring wide(std::string_view text) {
  std::wstring result;
  for (const char* p = text.data(); p < text.data() + text.size();) result += static_cast<wchar_t>(read_valid_char(p));
  return result;
}

bool equal_values(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
  return a == b;
}

bool of_type(const json::value& value, std::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_bool();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "number") return value.is_number();
  return value.is_int64() || value.is_uint64() || (value.is_double() && std::floor(value.get_double()) == value.get_double());
}

}  // namespace

std::string RandomSchema::word() {
  constexpr const char* kWords[] = {"a", "b", "name", "size", "x_1", "Größe", "quo\"te", "back\\slash", "space here", "日本"};
  return kWords[below(std::size(kWords))];
}

json::value RandomSchema::scalar() {
  switch (below(5)) {
    case 0: return nullptr;
    case 1: return below(2) == 0;
    case 2: return static_cast<int64_t>(below(2000)) - 1000;
    default: return json::value(word());
  }
}

json::object RandomSchema::string() {
  json::object s{{"type", "string"}};
  switch (below(5)) {
    case 0: s["pattern"] = kPatterns[below(std::size(kPatterns))]; break;
    case 1:
      s["minLength"] = static_cast<int64_t>(below(4));
      s["maxLength"] = static_cast<int64_t>(4 + below(8));
      break;
    case 2: s["maxLength"] = static_cast<int64_t>(below(20)); break;
    case 3: s["format"] = kFormats[below(std::size(kFormats))]; break;
    default: break;
  }
  return s;
}

json::object RandomSchema::integer() {
  json::object s{{"type", "integer"}};
  const int64_t low = static_cast<int64_t>(below(2000)) - 1000;
  switch (below(6)) {
    case 0: s["minimum"] = low; break;
    case 1:
      s["minimum"] = low;
      s["maximum"] = low + static_cast<int64_t>(below(300));
      break;
    case 2: s["exclusiveMaximum"] = low; break;
    case 3: s["multipleOf"] = static_cast<int64_t>(1 + below(9)); break;
    default: break;
  }
  return s;
}

json::object RandomSchema::number() {
  json::object s{{"type", "number"}};
  const double low = static_cast<double>(below(4000)) / 8 - 250;
  switch (below(4)) {
    case 0: s["minimum"] = low; break;
    case 1:
      s["minimum"] = low;
      s["maximum"] = low + static_cast<double>(1 + below(300)) / 4;
      break;
    default: break;
  }
  return s;
}

json::object RandomSchema::array(int depth) {
  json::object s{{"type", "array"}, {"items", value(depth + 1)}};
  const auto least = static_cast<int64_t>(below(3));
  if (below(2) == 0) s["minItems"] = least;
  if (below(2) == 0) s["maxItems"] = least + static_cast<int64_t>(below(4));
  return s;
}

json::object RandomSchema::object(int depth) {
  json::object properties;
  json::array required;
  for (uint64_t n = below(5); n > 0; --n) {
    const std::string key = word();
    if (properties.contains(key)) continue;
    properties[key] = value(depth + 1);
    if (below(2) == 0) required.emplace_back(key);
  }
  json::object s{{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) s["required"] = std::move(required);
  if (below(3) == 0) s["additionalProperties"] = false;
  if (below(6) == 0) s["additionalProperties"] = value(depth + 1);
  return s;
}

json::object RandomSchema::value(int depth) {
  const uint64_t kinds = depth > 3 ? 6 : 11;
  switch (below(kinds)) {
    case 0: return string();
    case 1: return integer();
    case 2: return number();
    case 3: return {{"type", "boolean"}};
    case 4: {
      json::array values;
      for (uint64_t n = 1 + below(4); n > 0; --n) values.push_back(scalar());
      return {{"enum", std::move(values)}};
    }
    case 5: return below(2) == 0 ? json::object{{"const", scalar()}} : json::object{{"type", json::array{"string", "null"}}};
    case 6: return array(depth);
    case 7: {
      json::array members;
      for (uint64_t n = 1 + below(3); n > 0; --n) members.push_back(value(depth + 1));
      return {{"anyOf", std::move(members)}};
    }
    case 8:
      if (definitions_ > 0) return {{"$ref", fmt::format("#/$defs/d{}", below(static_cast<uint64_t>(definitions_)))}};
      return string();
    default: return object(depth);
  }
}

json::object RandomSchema::schema() {
  definitions_ = static_cast<int>(below(3));
  json::object definitions;
  for (int i = 0; i < definitions_; ++i) definitions[fmt::format("d{}", i)] = value(2);
  json::object s = value(0);
  if (definitions_ > 0) s["$defs"] = std::move(definitions);
  return s;
}

json::object RandomSchema::parameters() {
  definitions_ = static_cast<int>(below(3));
  json::object definitions;
  for (int i = 0; i < definitions_; ++i) definitions[fmt::format("d{}", i)] = value(2);
  json::object s = object(1);
  if (definitions_ > 0) s["$defs"] = std::move(definitions);
  return s;
}

std::string violation(const json::value& v, const json::value& schema_value, const json::value& root) {
  if (schema_value.is_bool()) return schema_value.get_bool() ? "" : "nothing is allowed here";
  const json::object& schema = schema_value.as_object();
  const auto has = [&](const char* key) { return schema.if_contains(key); };
  if (const auto* reference = has("$ref")) {
    const json::value& target = root.at_pointer(std::string_view(reference->as_string()).substr(1));
    if (std::string wrong = violation(v, target, root); !wrong.empty()) return wrong;
  }
  if (const auto* wanted = has("const"); wanted != nullptr && !equal_values(v, *wanted)) return "not the constant";
  if (const auto* values = has("enum"))
    if (std::none_of(values->as_array().begin(), values->as_array().end(), [&](const json::value& e) { return equal_values(v, e); }))
      return "not in the enum: " + json::serialize(v);
  if (const auto* members = has("anyOf"))
    if (std::none_of(members->as_array().begin(), members->as_array().end(),
                     [&](const json::value& m) { return violation(v, m, root).empty(); }))
      return "satisfies no member of anyOf: " + json::serialize(v);
  if (const auto* type = has("type")) {
    const auto is = [&](const json::value& t) { return of_type(v, t.as_string()); };
    const bool right = type->is_array() ? std::any_of(type->as_array().begin(), type->as_array().end(), is) : is(*type);
    if (!right) return fmt::format("{} is not of the type {}", json::serialize(v), json::serialize(*type));
  }
  if (v.is_number()) {
    const double n = v.to_number<double>();
    if (const auto* b = has("minimum"); b != nullptr && n < b->to_number<double>()) return fmt::format("{} is below the minimum", n);
    if (const auto* b = has("maximum"); b != nullptr && n > b->to_number<double>()) return fmt::format("{} is above the maximum", n);
    if (const auto* b = has("exclusiveMaximum"); b != nullptr && n >= b->to_number<double>())
      return fmt::format("{} is not below the bound", n);
    if (const auto* b = has("multipleOf"); b != nullptr && std::abs(n) < 1e15 && std::fmod(n, b->to_number<double>()) != 0)
      return fmt::format("{} is not a multiple", n);
  }
  if (v.is_string()) {
    const int64_t length = characters(v.as_string());
    if (const auto* b = has("minLength"); b != nullptr && length < b->as_int64()) return "a string is too short";
    if (const auto* b = has("maxLength"); b != nullptr && length > b->as_int64()) return "a string is too long";
    if (const auto* pattern = has("pattern")) {
      if (!std::regex_search(wide(v.as_string()), std::wregex(wide(pattern->as_string()))))
        return fmt::format("{} does not match {}", json::serialize(v), json::serialize(*pattern));
    }
  }
  if (v.is_array()) {
    const auto n = static_cast<int64_t>(v.as_array().size());
    if (const auto* b = has("minItems"); b != nullptr && n < b->as_int64()) return "an array is too short";
    if (const auto* b = has("maxItems"); b != nullptr && n > b->as_int64()) return "an array is too long";
    if (const auto* items = has("items"))
      for (const json::value& item : v.as_array())
        if (std::string wrong = violation(item, *items, root); !wrong.empty()) return wrong;
  }
  if (v.is_object()) {
    const json::value* properties = has("properties");
    if (const auto* required = has("required"))
      for (const json::value& key : required->as_array())
        if (!v.as_object().contains(key.as_string())) return fmt::format("{} is missing", std::string_view(key.as_string()));
    for (const auto& [key, member] : v.as_object()) {
      const json::value* known = properties == nullptr ? nullptr : properties->as_object().if_contains(key);
      if (known == nullptr) known = has("additionalProperties");
      if (known == nullptr) continue;
      if (std::string wrong = violation(member, *known, root); !wrong.empty()) return fmt::format("{}: {}", std::string_view(key), wrong);
    }
  }
  return {};
}

}  // namespace baton::text
