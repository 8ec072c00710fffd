#include "text/grammar/spec_check.h"

#include <fmt/format.h>

#include <boost/json/serialize.hpp>
#include <boost/json/stream_parser.hpp>

#include "text/grammar/json_strings.h"
#include "text/grammar/schema_check.h"
#include "text/utf8.h"

namespace baton::text {
namespace json = boost::json;

namespace {

constexpr size_t kMostJsonNesting = 160;
constexpr int kMostParentheses = 100;
constexpr size_t kMostCountDigits = 6;

std::string name_of(GrammarSpec::Kind kind) {
  switch (kind) {
    case GrammarSpec::Kind::kJsonSchema: return "the JSON schema";
    case GrammarSpec::Kind::kJsonObject: return "the JSON object";
    case GrammarSpec::Kind::kRegex: return "the pattern";
    case GrammarSpec::Kind::kEbnf: return "the grammar";
    case GrammarSpec::Kind::kStructuralTag: return "the structural tag";
  }
  return "the grammar";
}

Result<json::value> parse(std::string_view text, const std::string& what) {
  json::parse_options options;
  options.max_depth = kMostJsonNesting;
  json::error_code error;
  json::stream_parser parser({}, options);
  parser.write(text, error);
  if (!error) parser.finish(error);
  if (error == json::error::too_deep)
    return Error{Error::Kind::kExhausted, fmt::format("{} is nested deeper than {} levels", what, kMostJsonNesting)};
  if (error) return Error{Error::Kind::kInvalid, fmt::format("{} is not JSON: {}", what, error.message())};
  return parser.release();
}

// Patterns and grammars: brackets and counts, whose handling further on recurses and multiplies.
Status check_nesting(std::string_view text, const std::string& what) {
  int open = 0;
  size_t digits = 0;
  bool counts = false;
  for (const char c : text) {
    if (c == '(') ++open;
    if (c == ')') --open;
    if (open > kMostParentheses)
      return Error{Error::Kind::kExhausted, fmt::format("{} has parentheses nested deeper than {} levels", what, kMostParentheses)};
    if (c == '{') counts = true;
    if (c == '}') counts = false;
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    if (counts && digits > kMostCountDigits)
      return Error{Error::Kind::kExhausted, fmt::format("{} repeats something more often than can be counted", what)};
  }
  return {};
}

Status check_and_rewrite(json::value& schema, const std::string& what) {
  BATON_TRY(check_schema(schema, what));
  auto rewritten = with_json_strings(schema);
  if (!rewritten.ok()) return Error{rewritten.error().kind, fmt::format("{}: {}", what, rewritten.error().message)};
  schema = std::move(*rewritten);
  return {};
}

// Schemas, patterns and grammars inside of a structural tag.
Status prepare_tag(json::value& value, const std::string& what) {
  if (value.is_array()) {
    for (json::value& part : value.get_array()) BATON_TRY(prepare_tag(part, what));
    return {};
  }
  if (!value.is_object()) return {};
  json::object& object = value.get_object();
  const json::value* type = object.if_contains("type");
  const auto text = [&](const char* key) -> std::string_view {
    const json::value* member = object.if_contains(key);
    return member != nullptr && member->is_string() ? std::string_view(member->get_string()) : std::string_view();
  };
  if (type != nullptr && type->is_string()) {
    const std::string_view name = type->get_string();
    if (json::value* schema = object.if_contains("json_schema");
        schema != nullptr && (name == "json_schema" || name == "qwen_xml_parameter"))
      return check_and_rewrite(*schema, what);
    if (name == "regex") return check_nesting(text("pattern"), what);
    if (name == "grammar") return check_nesting(text("grammar"), what);
  }
  for (auto& member : object) BATON_TRY(prepare_tag(member.value(), what));
  return {};
}

}  // namespace

Status check_grammar_spec(const GrammarSpec& spec, const GrammarLimits& limits) {
  const auto prepared = prepare_grammar_spec(spec, limits);
  if (!prepared.ok()) return prepared.error();
  return {};
}

Result<GrammarSpec> prepare_grammar_spec(const GrammarSpec& spec, const GrammarLimits& limits) {
  const std::string what = name_of(spec.kind);
  if (spec.kind == GrammarSpec::Kind::kJsonObject) return spec;
  if (spec.text.size() > limits.spec_bytes)
    return Error{Error::Kind::kExhausted, fmt::format("{} has {} bytes, and may have {}", what, spec.text.size(), limits.spec_bytes)};
  if (!valid_utf8(spec.text)) return Error{Error::Kind::kInvalid, fmt::format("{} is not valid UTF-8", what)};
  if (spec.text.find('\0') != std::string::npos) return Error{Error::Kind::kInvalid, fmt::format("{} has a zero byte in it", what)};
  if (spec.kind == GrammarSpec::Kind::kRegex || spec.kind == GrammarSpec::Kind::kEbnf) {
    BATON_TRY(check_nesting(spec.text, what));
    return spec;
  }
  BATON_ASSIGN(json::value value, parse(spec.text, what));
  if (spec.kind == GrammarSpec::Kind::kJsonSchema)
    BATON_TRY(check_and_rewrite(value, what));
  else
    BATON_TRY(prepare_tag(value, what));
  return GrammarSpec{spec.kind, json::serialize(value)};
}

}  // namespace baton::text
