// Grammars of tool calls, as far as they can be looked at without the library.
#include "text/grammar/tool_grammar.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "text/tokenizer.h"

namespace baton::text {
namespace {

// Every argument leads to 2^13 members through references: each for itself is within bounds, and all together would take minutes.
TEST(ToolGrammar, SchemasThatMultiplyAreRefusedAndNotFollowed) {
  auto tokenizer = Tokenizer::load(BATON_TEST_DATA "/tokenizers/glm-like.json");
  ASSERT_TRUE(tokenizer.ok());
  const OutputMarkup markup(*tokenizer);
  std::string schema = R"({"type":"object","properties":{)";
  for (int i = 0; i < 2000; ++i) schema += fmt::format(R"({}"p{}":{{"$ref":"#/$defs/d0"}})", i > 0 ? "," : "", i);
  schema += R"(},"$defs":{)";
  for (int k = 0; k < 13; ++k)
    schema += fmt::format(R"("d{0}":{{"anyOf":[{{"$ref":"#/$defs/d{1}"}},{{"$ref":"#/$defs/d{1}"}}]}},)", k, k + 1);
  schema += R"("d13":{"type":"integer"}}})";
  const ToolFunction function{"f", boost::json::parse(schema)};
  const auto refused = tool_call_grammar({&function, 1}, {}, markup, *tokenizer);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, Error::Kind::kUnsupported);
  EXPECT_NE(refused.error().message.find("too many steps"), std::string::npos) << refused.error().message;

  std::vector<ToolFunction> many;  // as many as people really send
  for (int i = 0; i < 200; ++i)
    many.push_back({fmt::format("f{}", i), boost::json::parse(R"({"type":"object","properties":{"a":{"type":"string"},"b":{"enum":[1,2]},
        "c":{"anyOf":[{"type":"integer"},{"type":"null"}]},"d":{"$ref":"#/$defs/x"}},"$defs":{"x":{"type":"boolean"}}})")});
  EXPECT_TRUE(tool_call_grammar(many, {}, markup, *tokenizer).ok());
}

}  // namespace
}  // namespace baton::text
