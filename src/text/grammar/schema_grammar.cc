#include "text/grammar/schema_grammar.h"

#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <charconv>
#include <vector>

#include "text/grammar/pattern_rule.h"

namespace baton::text {
namespace json = boost::json;

namespace {

constexpr std::string_view kPlaceholder = "baton_pattern_";
// The rule that the library makes for the characters of a string of given length, and what it should be.
constexpr std::string_view kCharacters = R"(_characters ::= (([^\"\\\r\n])))";
constexpr std::string_view kJsonCharacters = R"(_characters ::= (([^\0-\x1f\"\\\ud800-\udfff])))";

// Every schema inside of one, itself included. `visit` may change it.
void each_schema(json::value& value, const std::function<void(json::object&)>& visit) {
  if (!value.is_object()) return;
  json::object& schema = value.get_object();
  visit(schema);
  for (const char* key : {"properties", "patternProperties", "$defs", "definitions"})
    if (json::value* parts = schema.if_contains(key); parts != nullptr && parts->is_object())
      for (auto& part : parts->get_object()) each_schema(part.value(), visit);
  for (const char* key : {"items", "additionalProperties", "propertyNames"})
    if (json::value* part = schema.if_contains(key)) each_schema(*part, visit);
  for (const char* key : {"anyOf", "oneOf", "allOf", "prefixItems"})
    if (json::value* parts = schema.if_contains(key); parts != nullptr && parts->is_array())
      for (json::value& part : parts->get_array()) each_schema(part, visit);
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  std::string result;
  size_t begin = 0;
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, begin)) {
    result.append(text, begin, at - begin);
    result += to;
    begin = at + from.size();
  }
  text = result.append(text, begin);
}

// The library prints U+00DF as \xdf, and reads on as long as hexadecimal digits follow: "\xdfe" comes back as another character.
std::string with_definite_escapes(std::string_view ebnf) {
  std::string result;
  for (size_t at = 0; at < ebnf.size();) {
    if (ebnf[at] != '\\' || at + 1 == ebnf.size()) {
      result += ebnf[at++];
      continue;
    }
    unsigned code = 0;
    const char* digits = ebnf.data() + at + 2;
    if (ebnf[at + 1] == 'x' && at + 4 <= ebnf.size() && std::from_chars(digits, digits + 2, code, 16).ptr == digits + 2) {
      result += fmt::format("\\u{:04x}", code);
      at += 4;
    } else {
      result += ebnf.substr(at, 2);
      at += 2;
    }
  }
  return result;
}

const json::value* pattern_of(const json::object& schema) {
  const json::value* pattern = schema.if_contains("pattern");
  return pattern != nullptr && pattern->is_string() ? pattern : nullptr;
}

}  // namespace

bool restricts_strings(const json::value& schema) {
  json::value copy = schema;
  bool found = false;
  each_schema(copy,
              [&](json::object& s) { found = found || pattern_of(s) != nullptr || s.contains("minLength") || s.contains("maxLength"); });
  return found;
}

Status check_patterns(const json::value& schema) {
  json::value copy = schema;
  Status status;
  each_schema(copy, [&](json::object& s) {
    if (const json::value* pattern = pattern_of(s); pattern != nullptr && status.ok())
      if (const auto rule = pattern_rule(pattern->get_string(), true); !rule.ok()) status = rule.error();
  });
  return status;
}

Result<std::string> schema_grammar(const json::value& schema, const SchemaToEbnf& translate) {
  BATON_TRY(check_patterns(schema));
  json::value copy = schema;
  std::vector<std::string> rules;
  each_schema(copy, [&](json::object& s) {
    const json::value* pattern = pattern_of(s);
    if (pattern == nullptr) return;
    rules.push_back(*pattern_rule(pattern->get_string(), true));
    s["pattern"] = fmt::format("{}{}_", kPlaceholder, rules.size() - 1);
  });
  BATON_ASSIGN(const std::string translated, translate(json::serialize(copy)));
  std::string ebnf = with_definite_escapes(translated);
  replace_all(ebnf, kCharacters, kJsonCharacters);
  for (size_t i = 0; i < rules.size(); ++i)
    replace_all(ebnf, fmt::format("Regex(\"{}{}_\", json_string=true)", kPlaceholder, i), fmt::format("(({} ))", rules[i]));
  if (ebnf.find(fmt::format("Regex(\"{}", kPlaceholder)) != std::string::npos)
    return Error{Error::Kind::kUnsupported, "the grammar library has translated a pattern in a way that is not known"};
  return ebnf;
}

Status restate_schemas(json::value& tag, const SchemaToEbnf& translate) {
  if (tag.is_array())
    for (json::value& part : tag.get_array()) BATON_TRY(restate_schemas(part, translate));
  if (!tag.is_object()) return {};
  json::object& object = tag.get_object();
  const json::value *type = object.if_contains("type"), *style = object.if_contains("style");
  const json::value* schema = object.if_contains("json_schema");
  const bool plain = style == nullptr || (style->is_string() && style->get_string() == "json");
  if (schema != nullptr && type != nullptr && type->is_string() && type->get_string() == "json_schema" && plain) {
    if (!restricts_strings(*schema)) return {};
    BATON_ASSIGN(const std::string ebnf, schema_grammar(*schema, translate));
    tag = json::object{{"type", "grammar"}, {"grammar", ebnf}};
    return {};
  }
  for (auto& member : object) BATON_TRY(restate_schemas(member.value(), translate));
  return {};
}

}  // namespace baton::text
