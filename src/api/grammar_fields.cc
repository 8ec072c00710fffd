// What the output keeps to, in the spellings of OpenAI, vLLM, SGLang and llama.cpp.
#include "api/grammar_fields.h"

#include <boost/json/serialize.hpp>

#include "text/grammar/spec_check.h"

namespace baton::api {
namespace {

namespace json = boost::json;
using text::GrammarSpec;
using Kind = GrammarSpec::Kind;

void set_grammar(FieldReader& in, Request& out, GrammarSpec spec) {
  if (in.failed()) return;
  if (out.grammar) return in.wrong("is a second constraint on the output; only one can be given");
  const Status ok = text::check_grammar_spec(spec, {.spec_bytes = in.limits().schema_bytes});
  if (!ok.ok()) {
    if (ok.error().kind == Error::Kind::kUnsupported) return in.unsupported(ok.error().message);
    return in.wrong(ok.error().message);
  }
  out.grammar = std::move(spec);
  out.grammar_field = in.path();
}

// A schema or structural tag as an object, or as text that holds one.
void read_json_text(FieldReader& in, Request& out, Kind kind) {
  if (in.value().is_string()) {
    if (const auto text = in.text(in.limits().schema_bytes)) set_grammar(in, out, {kind, std::string(*text)});
    return;
  }
  if (in.value().is_object() || (kind == Kind::kJsonSchema && in.value().is_bool())) {
    return set_grammar(in, out, {kind, in.raw().empty() ? json::serialize(in.value()) : std::string(in.raw())});
  }
  in.wrong(fmt::format("is {}; it must be an object, or a string that holds one", shown(in.value())));
}

void read_schema(FieldReader& in, Request& out) { read_json_text(in, out, Kind::kJsonSchema); }
void read_tag(FieldReader& in, Request& out) { read_json_text(in, out, Kind::kStructuralTag); }

void read_text(FieldReader& in, Request& out, Kind kind) {
  const auto text = in.text(in.limits().schema_bytes);
  if (!text) return;
  if (text->empty()) return in.wrong("is empty");
  set_grammar(in, out, {kind, std::string(*text)});
}

void read_regex(FieldReader& in, Request& out) { read_text(in, out, Kind::kRegex); }
void read_ebnf(FieldReader& in, Request& out) { read_text(in, out, Kind::kEbnf); }

std::string ebnf_literal(std::string_view text) {
  std::string literal = "\"";
  for (const char c : text) {
    switch (c) {
      case '"': literal += "\\\""; break;
      case '\\': literal += "\\\\"; break;
      case '\n': literal += "\\n"; break;
      case '\r': literal += "\\r"; break;
      case '\t': literal += "\\t"; break;
      default:
        if (static_cast<uint8_t>(c) < 0x20)
          literal += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
        else
          literal += c;
    }
  }
  return literal += '"';
}

void read_choice(FieldReader& in, Request& out) {
  constexpr size_t kMostChoices = 4096;
  const json::array* choices = in.array(kMostChoices);
  if (choices == nullptr) return;
  if (choices->empty()) return in.wrong("is empty; there is nothing to choose");
  std::string grammar = "root ::= ";
  for (size_t i = 0; i < choices->size(); ++i) {
    FieldReader item = in.item(i, (*choices)[i]);
    const auto text = item.text(in.limits().schema_bytes);
    if (!text) return;
    if (text->empty()) return item.wrong("is empty");
    if (i > 0) grammar += " | ";
    grammar += ebnf_literal(*text);
  }
  set_grammar(in, out, {Kind::kEbnf, std::move(grammar)});
}

void read_json_object(FieldReader& in, Request& out) {
  if (const auto on = in.flag(); on && *on) set_grammar(in, out, {Kind::kJsonObject, ""});
}

constexpr Field kStructured[] = {
    {.name = "json", .type = "object or string", .what = "a JSON schema", .read = read_schema},
    {.name = "json_object", .type = "boolean", .what = "any JSON object", .read = read_json_object},
    {.name = "regex", .type = "string", .what = "a pattern that the whole output matches", .read = read_regex},
    {.name = "choice", .type = "list of strings", .what = "one of these", .read = read_choice},
    {.name = "grammar", .type = "string", .what = "EBNF whose first rule is `root`", .read = read_ebnf},
    {.name = "structural_tag", .type = "object or string", .what = "a structural tag of xgrammar", .read = read_tag},
    without_effect("disable_fallback", "there is no other backend"),
    refused("disable_any_whitespace", "white space between the values of JSON is the grammar's to choose", "false"),
    without_effect("disable_additional_properties", "properties without a name in the schema are closed in any case"),
    refused("whitespace_pattern", "white space between the values of JSON is the grammar's to choose"),
};

void read_structured(FieldReader& in, Request& out) {
  const std::span<const Field> groups[] = {kStructured};
  read_fields(in, groups, out);
}

constexpr Field kFields[] = {
    {.name = "structured_outputs",
     .type = "object",
     .what = "vLLM: one of `json`, `json_object`, `regex`, `choice`, `grammar`, `structural_tag`",
     .read = read_structured},
    {.name = "guided_json", .type = "object or string", .what = "vLLM, earlier: a JSON schema", .read = read_schema},
    {.name = "guided_regex", .type = "string", .what = "vLLM, earlier: a pattern", .read = read_regex},
    {.name = "guided_choice", .type = "list of strings", .what = "vLLM, earlier: one of these", .read = read_choice},
    {.name = "guided_grammar", .type = "string", .what = "vLLM, earlier: EBNF", .read = read_ebnf},
    without_effect("guided_decoding_backend", "there is one backend"),
    refused("guided_whitespace_pattern", "white space between the values of JSON is the grammar's to choose"),
    {.name = "json_schema", .type = "object or string", .what = "SGLang, llama.cpp: a JSON schema", .read = read_schema},
    {.name = "regex", .type = "string", .what = "SGLang: a pattern that the whole output matches", .read = read_regex},
    {.name = "ebnf", .type = "string", .what = "SGLang: EBNF whose first rule is `root`", .read = read_ebnf},
    {.name = "grammar", .type = "string", .what = "llama.cpp: EBNF whose first rule is `root`", .read = read_ebnf},
    {.name = "structural_tag", .type = "object or string", .what = "SGLang: a structural tag of xgrammar", .read = read_tag},
};

}  // namespace

std::span<const Field> grammar_fields() { return kFields; }

void read_response_format(FieldReader& in, Request& out) {
  const json::object* format = in.object();
  if (format == nullptr) return;
  const json::value* type = format->if_contains("type");
  if (type == nullptr || !type->is_string())
    return in.wrong("has no `type`; it must be 'text', 'json_object', 'json_schema' or 'structural_tag'");
  const std::string_view name = type->get_string();
  if (name == "text") return;
  if (name == "json_object") return set_grammar(in, out, {Kind::kJsonObject, ""});
  if (name == "structural_tag") return set_grammar(in, out, {Kind::kStructuralTag, json::serialize(in.value())});
  if (name != "json_schema")
    return in.member("type", *type)
        .unsupported(fmt::format("is {}; it must be 'text', 'json_object', 'json_schema' or 'structural_tag'", shown(*type)));
  // Chat completions have the schema one level further in than responses.
  const json::value* wrapper = format->if_contains("json_schema");
  if (wrapper != nullptr && !wrapper->is_object())
    return in.member("json_schema", *wrapper).wrong("must be an object that holds a `schema`");
  const FieldReader owner = wrapper != nullptr ? in.member("json_schema", *wrapper) : in;
  const json::value* schema = owner.value().get_object().if_contains("schema");
  if (schema == nullptr || schema->is_null()) return FieldReader(owner).wrong("has no `schema`");
  FieldReader reader = owner.member("schema", *schema);
  if (!schema->is_object()) return reader.wrong(fmt::format("is {}; it must be an object", shown(*schema)));
  read_schema(reader, out);
}

}  // namespace baton::api
