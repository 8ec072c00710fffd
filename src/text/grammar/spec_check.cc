#include "text/grammar/spec_check.h"

#include <fmt/format.h>

#include <boost/json/stream_parser.hpp>

#include "text/grammar/schema_check.h"
#include "text/grammar/schema_grammar.h"
#include "text/utf8.h"

namespace baton::text {
namespace json = boost::json;

namespace {

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

Status check_whole(const json::value& schema, const std::string& what) {
  BATON_TRY(check_schema(schema, what));
  const Status patterns = check_patterns(schema);
  if (!patterns.ok()) return Error{patterns.error().kind, fmt::format("{}: {}", what, patterns.error().message)};
  return {};
}

// Schemas, patterns and grammars inside of a structural tag.
Status check_tag(const json::value& value, const std::string& what) {
  if (value.is_array()) {
    for (const json::value& part : value.get_array()) BATON_TRY(check_tag(part, what));
    return {};
  }
  if (!value.is_object()) return {};
  const json::object& object = value.get_object();
  const json::value* type = object.if_contains("type");
  const auto text = [&](const char* key) -> std::string_view {
    const json::value* member = object.if_contains(key);
    return member != nullptr && member->is_string() ? std::string_view(member->get_string()) : std::string_view();
  };
  if (type != nullptr && type->is_string()) {
    const std::string_view name = type->get_string();
    if (const json::value* schema = object.if_contains("json_schema");
        schema != nullptr && (name == "json_schema" || name == "qwen_xml_parameter"))
      return check_whole(*schema, what);
    if (name == "regex") return check_nesting(text("pattern"), what);
    if (name == "grammar") return check_nesting(text("grammar"), what);
  }
  for (const auto& member : object) BATON_TRY(check_tag(member.value(), what));
  return {};
}

}  // namespace

Status check_grammar_spec(const GrammarSpec& spec, const GrammarLimits& limits) {
  const std::string what = name_of(spec.kind);
  if (spec.kind == GrammarSpec::Kind::kJsonObject) return {};
  if (spec.text.size() > limits.spec_bytes)
    return Error{Error::Kind::kExhausted, fmt::format("{} has {} bytes, and may have {}", what, spec.text.size(), limits.spec_bytes)};
  if (!valid_utf8(spec.text)) return Error{Error::Kind::kInvalid, fmt::format("{} is not valid UTF-8", what)};
  if (spec.text.find('\0') != std::string::npos) return Error{Error::Kind::kInvalid, fmt::format("{} has a zero byte in it", what)};
  if (spec.kind == GrammarSpec::Kind::kRegex || spec.kind == GrammarSpec::Kind::kEbnf) return check_nesting(spec.text, what);
  BATON_ASSIGN(const json::value value, parse(spec.text, what));
  if (spec.kind == GrammarSpec::Kind::kJsonSchema) return check_whole(value, what);
  if (!value.is_object()) return Error{Error::Kind::kInvalid, fmt::format("{} is not an object", what)};
  return check_tag(value, what);
}

}  // namespace baton::text
