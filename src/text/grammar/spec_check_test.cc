#include "text/grammar/spec_check.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

#include "text/grammar/ffi.h"
#include "text/grammar/pattern_rule.h"
#include "text/grammar/schema_grammar.h"

namespace baton::text {
namespace {

using Kind = GrammarSpec::Kind;

std::string refusal(const std::string& schema) {
  const Status status = check_grammar_spec({Kind::kJsonSchema, schema}, {});
  return status.ok() ? "" : status.error().message;
}

TEST(SpecCheck, LetsUsualSchemasThrough) {
  for (const char* schema : {
           "{}",
           "true",
           R"({"type":"object"})",
           R"({"title":"A","description":"d","type":"object","properties":{"a":{"type":"string","default":"x"},
               "b":{"anyOf":[{"type":"integer"},{"type":"null"}],"title":"B"}},"required":["a"],"additionalProperties":false})",
           R"({"$defs":{"Node":{"type":"object","properties":{"next":{"anyOf":[{"$ref":"#/$defs/Node"},{"type":"null"}]}},
               "required":["next"]}},"$ref":"#/$defs/Node"})",
           R"({"type":"array","items":{"$ref":"#/definitions/x"},"definitions":{"x":{"type":"string","enum":["a","b"]}}})",
           R"({"type":"object","properties":{"pattern":{"type":"string"},"not":{"type":"integer"},"enum":{"type":"boolean"}}})",
           R"({"allOf":[{"$ref":"#/$defs/x"}],"$defs":{"x":{"type":"number","minimum":0}}})",
           R"({"type":"object","properties":{"self":{"$ref":"#"}}})",
       })
    EXPECT_EQ(refusal(schema), "") << schema;
}

TEST(SpecCheck, NamesWhatOutputIsNotHeldTo) {
  const auto expect = [](const char* schema, std::string_view words) {
    EXPECT_NE(refusal(schema).find(words), std::string::npos) << schema << "\n" << refusal(schema);
  };
  expect(R"({"type":"object","properties":{"a":{"not":{}}}})", "#/properties/a uses 'not'");
  expect(R"({"type":"array","items":{},"uniqueItems":true})", "uniqueItems");
  expect(R"({"anyOf":[{"type":"object"}],"required":["a"]})", "'required' beside 'anyOf'");
  expect(R"({"enum":["a"],"type":"integer"})", "'type' beside 'enum'");
  expect(R"({"allOf":[{"type":"integer"},{"minimum":3}]})", "allOf of several");
  expect(R"({"minimum":3})", "without a type");
  expect(R"({"type":"string","pattern":"a","maxLength":3})", "more than one of");
  expect(R"({"type":"number","multipleOf":0.5})", "multipleOf");
  expect(R"({"if":{},"then":{}})", "'if'");
}

TEST(SpecCheck, NamesWhatIsWrong) {
  const auto expect = [](const std::string& schema, std::string_view words) {
    EXPECT_NE(refusal(schema).find(words), std::string::npos) << schema.substr(0, 100) << "\n" << refusal(schema);
  };
  expect("{", "not JSON");
  expect("3", "neither an object nor a boolean");
  expect(R"({"$ref":"#/$defs/x"})", "'#/$defs/x', which is not in it");
  expect(R"({"$ref":"http://a/b"})", "which is not in it");
  expect(R"({"$ref":"#"})", "in a circle");
  expect(R"({"anyOf":[{"$ref":"#/$defs/a"}],"$defs":{"a":{"oneOf":[{"$ref":"#"}]}}})", "in a circle");
  expect(R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "no finite value");
  expect(R"({"type":"array","items":{"$ref":"#"},"minItems":1})", "no finite value");
  expect(R"({"type":"string","maxLength":-1})", "whole number");
  expect(R"({"type":"array","items":{},"maxItems":10000000})", "may have 1000000");
  expect(R"({"type":"object","properties":[]})", "not an object");
  expect(R"({"type":"object","required":[1]})", "list of strings");
  expect(R"({"anyOf":[]})", "list of schemas");
  expect("{\"title\":\"\xC3\"}", "UTF-8");
  std::string deep = "{}";
  for (int i = 0; i < 70; ++i) deep = "{\"items\":" + deep + "}";
  expect(deep, "deeper than");
  expect(std::string(300000, ' '), "300000 bytes");
}

TEST(SpecCheck, AStructuralTagIsAnObject) {
  for (const char* tag : {"1", "[]", "null", "true", "\"a\"", "1.5"}) {
    const Status status = check_grammar_spec({Kind::kStructuralTag, tag}, {});
    ASSERT_FALSE(status.ok()) << tag;
    EXPECT_EQ(status.error().message, "the structural tag is not an object");
  }
}

TEST(Ffi, MessagesAreWithoutTheLibrarysCode) {
  EXPECT_EQ(without_check("Check failed: (std::holds_alternative<Grammar>(result)) is false: Format must be an object"),
            "Format must be an object");
  EXPECT_EQ(without_check("Check failed: (a) is false: b is false: c"), "b is false: c");
  for (const char* bare : {"Check failed: (a < b)", "Check failed: (a < b) is false: ", "x.cc:3: Check failed: (a)"})
    EXPECT_EQ(without_check(bare), "the grammar library cannot deal with this grammar");
  for (const char* other : {"", "Regex parsing error at position 2: The parenthesis is not closed.", "the pattern is false: x"})
    EXPECT_EQ(without_check(other), other);
}

TEST(SpecCheck, TakesNoTimeWhateverTheSchema) {
  // Chains of references, forwards and backwards.
  for (const bool backwards : {false, true}) {
    std::string definitions;
    for (int i = 0; i < 15000; ++i) {
      const int n = backwards ? 14999 - i : i;
      definitions += (i == 0 ? "" : ",") + ("\"d" + std::to_string(n)) + "\":{\"$ref\":\"#/$defs/d" + std::to_string(n + 1) + "\"}";
    }
    const std::string schema = R"({"$ref":"#/$defs/d0","$defs":{)" + definitions + R"(,"d15000":{"type":"string"}}})";
    // Its end is either found or given up on: never a crash, never a long search.
    GrammarLimits limits;
    limits.spec_bytes = schema.size();
    EXPECT_EQ(check_grammar_spec({Kind::kJsonSchema, schema}, limits).ok(), !backwards);
  }
}

TEST(PatternRule, SpeaksOfWhatIsWritten) {
  const auto rule = [](std::string_view pattern, bool in_json = true) {
    const auto result = pattern_rule(pattern, in_json);
    return result.ok() ? *result : "! " + result.error().message;
  };
  EXPECT_EQ(rule("^ab{2,3}|c+?(d|)$"), " [a] [b]{2,3} | [c]+ ( [d] | \"\" )");
  EXPECT_EQ(rule("(?:a)?(?<n>b)*"), " ( [a] )? ( [b] )*");
  EXPECT_EQ(rule(""), " \"\"");
  EXPECT_EQ(rule("\""), R"( ("\\" [\"]))");
  EXPECT_EQ(rule("\"", false), R"( [\"])");
  EXPECT_EQ(rule("\\\\"), R"( ("\\" [\\]))");
  EXPECT_EQ(rule("\\n"), R"( ("\\" [n]))");
  EXPECT_EQ(rule("[!-#]"), R"( ([!#] | "\\" [\"]))");
  EXPECT_EQ(rule("[^x]"), R"( [^\u0000-\u001f\"\\x\ud800-\udfff])");
  EXPECT_EQ(rule("\\u{1F600}"), " [\xF0\x9F\x98\x80]");
  EXPECT_EQ(rule("\\d-\\w"), R"( [0-9] [\-] [0-9A-Z_a-z])");
  EXPECT_EQ(rule("a{b}"), " [a] [{] [b] [}]");
  for (const char* bad : {"\\", "[a", "[z-a]", "\\b", "\\1", "\\p{L}", "\\xZZ", "\\u{FFFFFFF}", "\\u{110000}", "[^\\s\\S]", "\\x01", "a^b",
                          "a$b", "(?=a)", "(?<!a)", "*", "a**"})
    EXPECT_EQ(rule(bad).substr(0, 1), "!") << bad;
}

TEST(SchemaGrammar, RestatesStringsOfSchemasOnly) {
  const auto schema =
      boost::json::parse(R"({"properties":{"pattern":{"const":"\""},"x":{"type":"string","pattern":"\""}},"enum":[{"pattern":"\""}]})");
  std::string handed;
  const auto grammar = schema_grammar(schema, [&](const std::string& text) -> Result<std::string> {
    handed = text;
    return std::string("a ::= Regex(\"baton_pattern_0_\", json_string=true)\nb_characters ::= (([^\\\"\\\\\\r\\n]))\n");
  });
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  EXPECT_EQ(*grammar, "a ::= (( (\"\\\\\" [\\\"]) ))\nb_characters ::= (([^\\0-\\x1f\\\"\\\\\\ud800-\\udfff]))\n");
  const auto restated = boost::json::parse(handed);
  EXPECT_EQ(restated.at("properties").at("pattern"), schema.at("properties").at("pattern"));
  EXPECT_EQ(restated.at("enum"), schema.at("enum"));
  EXPECT_FALSE(restricts_strings(boost::json::parse(R"({"properties":{"maxLength":{"type":"string"}}})")));
  EXPECT_TRUE(restricts_strings(boost::json::parse(R"({"items":{"anyOf":[{"type":"string","maxLength":3}]}})")));
}

TEST(Ffi, AMissingLibrarySaysWhatToDo) {
  const auto loaded = Ffi::load("/nonexistent");
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().kind, Error::Kind::kUnsupported);
  for (const char* word : {"structured output is not available", "xgrammar 0.2.9", "BATON_XGRAMMAR"})
    EXPECT_NE(loaded.error().message.find(word), std::string::npos) << loaded.error().message;
}

}  // namespace
}  // namespace baton::text
