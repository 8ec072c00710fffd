#include "text/grammar/tool_grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "text/grammar/pattern_rule.h"
#include "text/grammar/schema_check.h"
#include "text/parse/argument_types.h"
#include "text/tokenizer.h"

namespace baton::text {
namespace json = boost::json;

namespace {

constexpr int kMostReferences = 16;
const char* const kAnyKey = "[A-Za-z0-9_.\\-]{1,64}";

bool is_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
  });
}

json::value words(std::string_view text) { return {{"type", "const_string"}, {"value", text}}; }
json::value rule(const std::string& text) { return {{"type", "grammar"}, {"grammar", "root ::= " + text}}; }
json::value one_of(json::array elements) { return {{"type", "or"}, {"elements", std::move(elements)}}; }
json::value in_sequence(json::array elements) { return {{"type", "sequence"}, {"elements", std::move(elements)}}; }

bool has_only(const json::object& schema, std::initializer_list<std::string_view> keys) {
  constexpr std::string_view kSayNothing[] = {"title", "description", "default", "examples", "deprecated", "$comment"};
  return std::all_of(schema.begin(), schema.end(), [&](const auto& member) {
    const std::string_view key = member.key();
    return std::count(keys.begin(), keys.end(), key) > 0 || std::count(std::begin(kSayNothing), std::end(kSayNothing), key) > 0;
  });
}

// The grammar of one function's call.
class CallGrammar {
 public:
  // `added` are the ids that are no text.
  CallGrammar(const ToolFunction& function, const OutputMarkup& markup, const json::array& added, SchemaBudget& budget)
      : function_(function), markup_(markup), added_(added), budget_(budget) {}

  // All that stands between <tool_call> and </tool_call>.
  Result<json::value> build() {
    if (!is_name(function_.name))
      return Error{Error::Kind::kInvalid,
                   fmt::format("a function cannot be called '{}'; names have letters, digits, '_', '.' and '-'", function_.name)};
    json::array elements{words(function_.name)};
    const json::object* schema = nullptr;
    if (function_.parameters.is_object()) {
      BATON_TRY(check_schema(function_.parameters, fmt::format("the parameters of {}", function_.name)));
      schema = &resolved(function_.parameters.get_object());
      for (const char* key :
           {"anyOf", "oneOf", "allOf", "enum", "const", "patternProperties", "propertyNames", "minProperties", "maxProperties"})
        if (schema->contains(key)) return unsupported("", fmt::format("use '{}' for the arguments as a whole", key));
    } else if (!function_.parameters.is_null()) {
      return unsupported("", "are no JSON schema");
    }
    const json::value* properties = schema == nullptr ? nullptr : schema->if_contains("properties");
    if (properties == nullptr) {
      BATON_TRY(add_any_arguments(schema, elements));
    } else {
      for (const auto& [key, property] : properties->get_object()) {
        const std::string_view name = key;
        if (name.empty() || name.find_first_of(" \t\n\r\f\v") == 0 || name.find_last_of(" \t\n\r\f\v") == name.size() - 1)
          return unsupported(name, "has a name with white space around, or none");
        BATON_ASSIGN(json::value argument, argument_of(words(name), property, name));
        const bool required = is_required(*schema, name);
        elements.push_back(required ? std::move(argument) : json::value{{"type", "optional"}, {"content", std::move(argument)}});
      }
      if (const json::value* names = schema->if_contains("required"))
        for (const json::value& name : names->get_array())
          if (!properties->get_object().contains(name.get_string()))
            return unsupported(name.get_string(), "is required and not among the properties");
    }
    if (budget_.exhausted()) return unsupported("", {});
    return in_sequence(std::move(elements));
  }

 private:
  Error unsupported(std::string_view argument, std::string what) const {
    if (budget_.exhausted()) what = "leads through too many steps";  // and types were guessed
    return {Error::Kind::kUnsupported,
            argument.empty()
                ? fmt::format("the parameters of {} {}, and calls would not be held to it", function_.name, what)
                : fmt::format("the argument '{}' of {} {}, and calls would not be held to it", argument, function_.name, what)};
  }

  // By tokens rather than by characters: masks of free text in one of several functions are four hundred times faster so.
  json::value any_text() const { return {{"type", "any_tokens"}, {"exclude_tokens", added_}}; }

  json::value token(Marker marker) const { return {{"type", "token"}, {"token", markup_.id(marker)}}; }

  Status add_any_arguments(const json::object* schema, json::array& elements) const {
    const json::value* others = schema == nullptr ? nullptr : schema->if_contains("additionalProperties");
    if (others != nullptr && others->is_bool() && !others->get_bool()) return {};
    const json::value anything{json::object{}};
    BATON_ASSIGN(json::value argument,
                 argument_of(rule(kAnyKey), others != nullptr && others->is_object() ? *others : anything, "of any name"));
    elements.push_back({{"type", "star"}, {"content", std::move(argument)}});
    return {};
  }

  Result<json::value> argument_of(json::value key, const json::value& schema, std::string_view name) const {
    BATON_ASSIGN(json::value value, value_of(schema, name));
    return in_sequence({token(Marker::kArgKey), std::move(key), token(Marker::kArgKeyEnd), token(Marker::kArgValue), std::move(value),
                        token(Marker::kArgValueEnd)});
  }

  // What stands for a value: strings raw, everything else as JSON; and where either may be, nothing that OutputParser would take for the
  // other.
  Result<json::value> value_of(const json::value& property, std::string_view name) const {
    if (!property.is_object()) return any_text();
    const json::object& schema = resolved(property.get_object());
    const ArgumentType type = ToolTypes::of(schema, function_.parameters, budget_);
    if (!type.has(JsonKind::kString)) return json_value(property);
    if (type.is_anything() && has_only(schema, {})) return any_text();
    if (const json::value* values = schema.if_contains("enum")) return choice_of(values->get_array(), type, name);
    if (const json::value* value = schema.if_contains("const")) return choice_of({*value}, type, name);
    if (type == ArgumentType::of(JsonKind::kString)) return raw_string(schema, name);
    return union_of(schema, type, name);
  }

  json::value json_value(const json::value& property) const {
    json::object schema = property.get_object();
    // References lead from the root of the parameters.
    for (const char* key : {"$defs", "definitions"})
      if (const json::value* shared = function_.parameters.get_object().if_contains(key); shared != nullptr && !schema.contains(key))
        if (json::serialize(property).find("\"$ref\"") != std::string::npos) schema[key] = *shared;
    return {{"type", "json_schema"}, {"json_schema", std::move(schema)}};
  }

  Result<json::value> choice_of(const json::array& values, ArgumentType type, std::string_view name) const {
    json::array choices;
    for (const json::value& value : values) {
      if (!value.is_string()) {
        choices.push_back(words(json::serialize(value)));
        continue;
      }
      const std::string_view text = value.get_string();
      const auto kind = json_kind(text);
      if (kind && *kind != JsonKind::kString && type.has(*kind) && type != ArgumentType::of(JsonKind::kString))
        return unsupported(name, fmt::format("has the string '{}' beside the JSON value that it reads like", text));
      choices.push_back(text.empty() ? json::value{{"type", "sequence"}, {"elements", json::array{}}} : words(text));
    }
    if (choices.size() == 1) return std::move(choices.front());
    return one_of(std::move(choices));
  }

  Result<json::value> raw_string(const json::object& schema, std::string_view name) const {
    if (const json::value* wanted = schema.if_contains("pattern")) {
      BATON_ASSIGN(const std::string text, pattern_rule(wanted->get_string(), false));
      return rule(text);
    }
    if (schema.contains("minLength") || schema.contains("maxLength")) {
      const json::value *least = schema.if_contains("minLength"), *most = schema.if_contains("maxLength");
      return rule(
          length_rule(least == nullptr ? 0 : least->get_int64(), most == nullptr ? std::nullopt : std::optional(most->get_int64())));
    }
    if (!has_only(schema, {"type", "format", "$ref", "$defs", "definitions"}))
      return unsupported(name, "says more of its strings than a length or a pattern");
    return any_text();
  }

  // A string or something else. Free text does if whatever it reads like is let through; else text that reads like a member is left out.
  Result<json::value> union_of(const json::object& schema, ArgumentType type, std::string_view name) const {
    json::array others;
    bool simple = true;
    const auto add = [&](const json::object& member) -> Status {
      const json::object& real = resolved(member);
      if (ToolTypes::of(real, function_.parameters, budget_).has(JsonKind::kString)) {
        if (!has_only(real, {"type", "format"})) return unsupported(name, "is either something else or a string that is not any string");
        return {};
      }
      simple = simple && has_only(real, {"type"});
      others.push_back(member);
      return {};
    };
    bool members = false;
    for (const char* key : {"anyOf", "oneOf"})
      if (const json::value* list = schema.if_contains(key)) {
        members = true;
        for (const json::value& member : list->get_array()) {
          if (!member.is_object()) return unsupported(name, "is a union with a member that is no object");
          BATON_TRY(add(member.get_object()));
        }
      }
    if (!members) {
      const json::value* names = schema.if_contains("type");
      if (names == nullptr || !names->is_array()) return unsupported(name, "mixes strings with something else in a way that is not known");
      for (const char* key : {"pattern", "minLength", "maxLength"})
        if (schema.contains(key)) return unsupported(name, "is either something else or a string that is not any string");
      json::object rest = schema;
      json::array types;
      for (const json::value& one : names->get_array())
        if (!one.is_string() || one.get_string() != "string") types.push_back(one);
      rest["type"] = std::move(types);
      simple = has_only(rest, {"type", "format"});
      others.push_back(std::move(rest));
    }
    if (simple) return any_text();
    std::string first = " \\t\\n\\r";
    if (type.has(JsonKind::kInteger)) first += "0-9\\-";
    if (type.has(JsonKind::kArray)) first += "\\[";
    if (type.has(JsonKind::kObject)) first += "{";
    if (type.has(JsonKind::kBoolean)) first += "tf";
    if (type.has(JsonKind::kNull)) first += "n";
    const json::value other = others.size() == 1 ? std::move(others.front()) : json::value{{"anyOf", std::move(others)}};
    return one_of({json_value(other), rule(fmt::format("[^{}] [^\\0]*", first))});
  }

  // Follows references and an allOf of one, which say nothing themselves.
  const json::object& resolved(const json::object& start) const {
    const json::object* schema = &start;
    for (int i = 0; i < kMostReferences; ++i) {
      const json::value* next = nullptr;
      if (const json::value* reference = schema->if_contains("$ref"); reference != nullptr && reference->is_string()) {
        boost::system::error_code failed;
        next = function_.parameters.find_pointer(std::string_view(reference->get_string()).substr(1), failed);
      } else if (const json::value* all = schema->if_contains("allOf"); all != nullptr && all->is_array() && all->get_array().size() == 1) {
        next = &all->get_array().front();
      }
      if (next == nullptr || !next->is_object()) break;
      schema = &next->get_object();
    }
    return *schema;
  }

  static bool is_required(const json::object& schema, std::string_view name) {
    const json::value* names = schema.if_contains("required");
    return names != nullptr && std::any_of(names->get_array().begin(), names->get_array().end(),
                                           [&](const json::value& n) { return n.is_string() && n.get_string() == name; });
  }

  const ToolFunction& function_;
  const OutputMarkup& markup_;
  const json::array& added_;
  SchemaBudget& budget_;  // of all functions together
};

}  // namespace

std::vector<int32_t> tool_markers(const OutputMarkup& markup) {
  std::vector<int32_t> ids;
  for (int i = static_cast<int>(Marker::kToolCall); i < kMarkerCount; ++i)
    if (const int32_t id = markup.id(static_cast<Marker>(i)); id >= 0) ids.push_back(id);
  return ids;
}

Result<GrammarSpec> tool_call_grammar(std::span<const ToolFunction> functions, const ToolGrammarOptions& options,
                                      const OutputMarkup& markup, const Tokenizer& tokenizer) {
  using Choice = ToolGrammarOptions::Choice;
  for (int i = static_cast<int>(Marker::kToolCall); i < kMarkerCount; ++i)
    if (markup.in_text(static_cast<Marker>(i)))
      return Error{Error::Kind::kUnsupported,
                   fmt::format("this model's tokenizer has no token {}, so that calls cannot be forced", spelling(static_cast<Marker>(i)))};
  json::array added;
  for (const int32_t id : tokenizer.added_ids()) added.push_back(id);
  json::array calls;
  SchemaBudget budget{.steps = 200'000};
  for (const ToolFunction& function : functions) {
    if (options.choice == Choice::kNamed && function.name != options.named) continue;
    BATON_ASSIGN(json::value call, CallGrammar(function, markup, added, budget).build());
    calls.push_back(std::move(call));
  }
  if (calls.empty())
    return Error{Error::Kind::kInvalid, options.choice == Choice::kNamed ? fmt::format("there is no function '{}' to choose", options.named)
                                                                         : std::string("there are no functions to call")};
  const auto token = [&](Marker marker) { return json::value{{"type", "token"}, {"token", markup.id(marker)}}; };
  json::value call{{"type", "tag"},
                   {"begin", token(Marker::kToolCall)},
                   {"content", calls.size() == 1 ? std::move(calls.front()) : one_of(std::move(calls))},
                   {"end", token(Marker::kToolCallEnd)}};
  json::value format;
  if (options.choice == Choice::kAuto && !options.response_schema) {
    json::array excluded;
    for (const int32_t id : tokenizer.added_ids())
      if (id != markup.id(Marker::kToolCall)) excluded.push_back(id);
    format = {{"type", "token_triggered_tags"},
              {"trigger_tokens", json::array{markup.id(Marker::kToolCall)}},
              {"tags", json::array{std::move(call)}},
              {"exclude_tokens", std::move(excluded)},
              {"stop_after_first", !options.parallel}};
  } else {
    format = options.choice == Choice::kNamed || !options.parallel ? std::move(call)
                                                                   : json::value{{"type", "plus"}, {"content", std::move(call)}};
    if (options.choice == Choice::kAuto)
      format = one_of({json::value{{"type", "json_schema"}, {"json_schema", *options.response_schema}}, std::move(format)});
  }
  return GrammarSpec{GrammarSpec::Kind::kStructuralTag,
                     json::serialize(json::object{{"type", "structural_tag"}, {"format", std::move(format)}})};
}

}  // namespace baton::text
