// What matchers let through. With the grammar library; skipped where it is missing.
#include <boost/json/parse.hpp>
#include <random>

#include "text/grammar/grammar_fixture.h"
#include "text/grammar/tool_grammar.h"

namespace baton::text {
namespace {

std::vector<int32_t> row_of(GrammarMatcher& matcher) {
  std::vector<int32_t> row(matcher.row_words());
  const auto filled = matcher.fill(row);
  EXPECT_TRUE(filled.ok()) << filled.error().message;
  return row;
}

bool has(const std::vector<int32_t>& row, int32_t id) {
  return (static_cast<uint32_t>(row[static_cast<size_t>(id) / 32]) >> id % 32 & 1) != 0;
}

int32_t random_allowed(const std::vector<int32_t>& row, std::mt19937_64& random) {
  for (int i = 0; i < 100000; ++i)
    if (const auto id = static_cast<int32_t>(random() % (row.size() * 32)); has(row, id)) return id;
  for (int32_t id = 0; id < static_cast<int32_t>(row.size()) * 32; ++id)
    if (has(row, id)) return id;
  return -1;
}

// Whether the matcher lets all of the text through, and an end behind it.
bool takes(GrammarMatcher& matcher, std::string_view text) {
  const auto ids = tokenizer().encode(text);
  for (const int32_t id : *ids)
    if (!*matcher.accept(id)) return false;
  return has(row_of(matcher), id_of("<|endoftext|>"));
}

bool takes(const GrammarCompiler::Compiled& grammar, std::string_view text) {
  auto matcher = GrammarMatcher::create(grammar);
  return takes(*matcher, text);
}

TEST(Grammar, EveryKindHoldsOutputToIt) {
  const auto c = compiler();
  SKIP_WITHOUT_LIBRARY(c);
  const auto schema = compiled(*c, Kind::kJsonSchema, R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})");
  EXPECT_TRUE(takes(schema, R"({"a": 12})"));
  EXPECT_TRUE(takes(schema, "{\n    \"a\": 12\n}"));
  EXPECT_FALSE(takes(schema, R"({"a": "x"})"));
  EXPECT_FALSE(takes(schema, R"({"b": 12})"));
  const auto object = compiled(*c, Kind::kJsonObject, "");
  EXPECT_TRUE(takes(object, R"({"x": [1, null, {"y": "z"}]})"));
  EXPECT_FALSE(takes(object, "[1]"));
  const auto pattern = compiled(*c, Kind::kRegex, "(yes|no), [0-9]{2}");
  EXPECT_TRUE(takes(pattern, "no, 42"));
  EXPECT_FALSE(takes(pattern, "no, 4"));
  const auto ebnf = compiled(*c, Kind::kEbnf, "root ::= item (\"+\" item)*\nitem ::= [0-9]+");
  EXPECT_TRUE(takes(ebnf, "1+22+3"));
  EXPECT_FALSE(takes(ebnf, "1+"));
  const auto tag = compiled(*c, Kind::kStructuralTag, R"({"type":"structural_tag","format":{"type":"sequence","elements":[
      {"type":"const_string","value":"n="},{"type":"json_schema","json_schema":{"type":"integer"}}]}})");
  EXPECT_TRUE(takes(tag, "n=7"));
  EXPECT_FALSE(takes(tag, "m=7"));
}

TEST(Grammar, StringsAreHeldToWhatJsonCanWrite) {
  const auto c = compiler();
  SKIP_WITHOUT_LIBRARY(c);
  const auto quote = compiled(*c, Kind::kJsonSchema, R"({"type":"string","pattern":"^\"x\\\\$"})");
  EXPECT_TRUE(takes(quote, R"("\"x\\")"));
  EXPECT_FALSE(takes(quote, R"(""x\")"));
  const auto any = compiled(*c, Kind::kJsonSchema, R"({"type":"string","maxLength":3})");
  EXPECT_TRUE(takes(any, R"("a b")"));
  EXPECT_FALSE(takes(any, "\"a\tb\""));
  EXPECT_FALSE(takes(any, "\"a\nb\""));
  EXPECT_FALSE(takes(any, "\"abcd\""));
}

TEST(Grammar, MasksAreWhatIsAccepted) {
  const auto c = compiler();
  SKIP_WITHOUT_LIBRARY(c);
  constexpr uint64_t kSeed = 8;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  const auto grammar = compiled(*c, Kind::kJsonSchema,
                                R"({"type":"object","properties":{"é":{"type":"array","items":{"enum":["a",1,null]}}},"required":["é"]})");
  auto matcher = GrammarMatcher::create(grammar);
  for (int step = 0; step < 25 && !matcher->terminated(); ++step) {
    const auto row = row_of(*matcher);
    for (int i = 0; i < 400; ++i) {
      const auto id = static_cast<int32_t>(random() % (row.size() * 32));
      auto other = matcher->fork();
      ASSERT_EQ(*other->accept(id), has(row, id)) << id;
    }
    // Neither added tokens nor columns without a token, but stop ids where the output may end.
    for (const int32_t id : tokenizer().added_ids())
      ASSERT_TRUE(!has(row, id) || id == id_of("<|endoftext|>") || id == id_of("<|user|>")) << id;
    for (int32_t id = tokenizer().id_limit(); id < static_cast<int32_t>(row.size()) * 32; ++id) ASSERT_FALSE(has(row, id));
    ASSERT_TRUE(*matcher->accept(random_allowed(row, random)));
  }
}

// Whatever was accepted, rolled back, forked and drafted: the state is that of a matcher that saw what is left, and nothing else.
TEST(Grammar, RollbackForkAndDraftAgreeWithAFreshMatcher) {
  const auto c = compiler();
  SKIP_WITHOUT_LIBRARY(c);
  constexpr uint64_t kSeed = 9;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  const std::vector<GrammarCompiler::Compiled> grammars = {
      compiled(*c, Kind::kJsonSchema, R"({"type":"array","items":{"type":"string","maxLength":5},"maxItems":4})"),
      compiled(*c, Kind::kRegex, "([a-z]+ ){1,8}"), compiled(*c, Kind::kJsonObject, "")};
  int draft_rows = 0, ends = 0, edges = 0;
  for (int round = 0; round < 60; ++round) {
    const auto& grammar = grammars[random() % grammars.size()];
    GrammarMatcher::Options options;
    if (round % 2 == 0) options = {.begins_after = id_of("</think>"), .not_before = {id_of("<tool_call>")}};
    auto matcher = GrammarMatcher::create(grammar, options);
    std::vector<int32_t> accepted;
    const auto fresh = [&] {
      auto other = GrammarMatcher::create(grammar, options);
      for (const int32_t id : accepted) EXPECT_TRUE(*other->accept(id));
      return std::move(*other);
    };
    const auto next = [&](GrammarMatcher& m) {
      if (!m.begun() && random() % 3 == 0) return id_of("</think>");
      if (random() % 8 == 0) return static_cast<int32_t>(random() % 12000);
      return random_allowed(row_of(m), random);
    };
    for (int step = 0; step < 25; ++step) {
      const bool begun = matcher->begun();
      switch (random() % 6) {
        case 0: {
          const size_t n = random() % (accepted.size() + 1);
          ASSERT_TRUE(matcher->rollback(n).ok());
          accepted.resize(accepted.size() - n);
          break;
        }
        case 1: {
          auto other = matcher->fork();
          ASSERT_TRUE(other.ok());
          // What happens to the fork does not touch this one.
          for (int i = 0; i < 3; ++i) ASSERT_TRUE(other->accept(next(*other)).ok());
          break;
        }
        case 2: {
          std::vector<int32_t> draft;
          auto model = matcher->fork();
          for (uint64_t k = random() % 8; k > 0; --k) {
            draft.push_back(next(*model));
            ASSERT_TRUE(model->accept(draft.back()).ok());
          }
          const size_t words = matcher->row_words();
          std::vector<int32_t> rows((draft.size() + 1) * words);
          const auto counting = matcher->fill_along(draft, rows);
          ASSERT_TRUE(counting.ok());
          ASSERT_GE(*counting, 1U);
          auto along = fresh();
          for (size_t i = 0; i < *counting; ++i, ++draft_rows) {
            const std::vector<int32_t> row(rows.begin() + static_cast<ptrdiff_t>(i * words),
                                           rows.begin() + static_cast<ptrdiff_t>((i + 1) * words));
            ASSERT_EQ(row, row_of(along)) << i;
            if (i < draft.size()) {
              ASSERT_EQ(*along.accept(draft[i]) && !along.terminated(), i + 1 < *counting);
            }
          }
          break;
        }
        default: {
          const int32_t id = next(*matcher);
          const bool allowed = has(row_of(*matcher), id) && !matcher->terminated();
          ASSERT_EQ(*matcher->accept(id), allowed);
          if (allowed) accepted.push_back(id);
        }
      }
      auto other = fresh();
      ASSERT_EQ(matcher->terminated(), other.terminated());
      ASSERT_EQ(matcher->begun(), other.begun());
      ASSERT_EQ(matcher->accepted(), accepted.size());
      ASSERT_EQ(row_of(*matcher), row_of(other));
      edges += begun != matcher->begun() ? 1 : 0;
      ends += matcher->terminated() ? 1 : 0;
    }
  }
  EXPECT_GT(draft_rows, 100);
  EXPECT_GT(ends, 5);
  EXPECT_GT(edges, 20);
}

TEST(Grammar, SleepsUntilReasoningEnds) {
  const auto c = compiler();
  SKIP_WITHOUT_LIBRARY(c);
  const auto grammar = compiled(*c, Kind::kRegex, "ab");
  auto matcher = GrammarMatcher::create(grammar, {.begins_after = id_of("</think>"), .not_before = {id_of("<tool_call>")}});
  auto row = row_of(*matcher);
  EXPECT_FALSE(matcher->begun());
  EXPECT_FALSE(has(row, id_of("<|user|>")));
  EXPECT_FALSE(has(row, id_of("<tool_call>")));
  EXPECT_TRUE(has(row, id_of("</think>")));
  EXPECT_FALSE(*matcher->accept(id_of("<|user|>")));
  const auto anything = tokenizer().encode("anything at all");
  for (const int32_t id : *anything) EXPECT_TRUE(*matcher->accept(id));
  EXPECT_TRUE(*matcher->accept(id_of("</think>")));
  EXPECT_TRUE(matcher->begun());
  EXPECT_TRUE(takes(*matcher, "ab"));
  EXPECT_TRUE(*matcher->accept(id_of("<|user|>")));
  EXPECT_TRUE(matcher->terminated());
  EXPECT_FALSE(*matcher->accept(id_of("<|user|>")));
}

TEST(Grammar, CallsComeThroughTheParser) {
  const auto c = compiler();
  SKIP_WITHOUT_LIBRARY(c);
  const OutputMarkup markup(tokenizer());
  const std::vector<ToolFunction> functions = {
      {"get_weather",
       boost::json::parse(R"({"type":"object","properties":{"city":{"type":"string"},"days":{"type":"integer"}},"required":["city"]})")},
      {"list_files", nullptr}};
  using Choice = ToolGrammarOptions::Choice;
  const auto grammar = [&](Choice choice, bool parallel = true) {
    const auto spec = tool_call_grammar(functions, {.choice = choice, .named = "get_weather", .parallel = parallel}, markup, tokenizer());
    EXPECT_TRUE(spec.ok());
    return compiled(*c, spec->kind, spec->text);
  };
  const std::string bern = "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Bern</arg_value></tool_call>";
  const std::string files = "<tool_call>list_files<arg_key>x</arg_key><arg_value>[1]</arg_value></tool_call>";
  const auto automatic = grammar(Choice::kAuto), required = grammar(Choice::kRequired), named = grammar(Choice::kNamed),
             one = grammar(Choice::kRequired, false);
  EXPECT_TRUE(takes(automatic, "Hello. " + bern + files));
  EXPECT_TRUE(takes(automatic, "Hello."));
  EXPECT_FALSE(takes(automatic, "<tool_call>other</tool_call>"));
  EXPECT_TRUE(takes(required, bern + files));
  EXPECT_FALSE(takes(required, "Hello."));
  EXPECT_FALSE(takes(one, bern + files));
  EXPECT_TRUE(takes(named, bern));
  EXPECT_FALSE(takes(named, files));
  EXPECT_FALSE(takes(named, "<tool_call>get_weather</tool_call>"));
  EXPECT_FALSE(takes(named,
                     "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Bern</arg_value><arg_key>days</arg_key><arg_value>x</"
                     "arg_value></tool_call>"));
  // Markers spelled with ordinary tokens are no markers, and so no calls.
  auto matcher = GrammarMatcher::create(required);
  const auto spelled = tokenizer().encode(bern, {.added_tokens = AddedTokens::kNone});
  EXPECT_FALSE(*matcher->accept(spelled->front()));
}

TEST(Grammar, FunctionsThatCannotBeForcedAreNamed) {
  const OutputMarkup markup(tokenizer());
  const auto error = [&](const char* parameters, const char* name = "f") {
    const std::vector<ToolFunction> functions = {{name, boost::json::parse(parameters)}};
    const auto spec = tool_call_grammar(functions, {.choice = ToolGrammarOptions::Choice::kRequired}, markup, tokenizer());
    return spec.ok() ? std::string() : spec.error().message;
  };
  EXPECT_EQ(error(R"({"type":"object","properties":{"a":{"type":["string","integer"],"minimum":3}}})"), "");
  EXPECT_NE(error("{}", "two words").find("two words"), std::string::npos);
  EXPECT_NE(error(R"({"type":"object","properties":{" a":{}}})").find("white space"), std::string::npos);
  EXPECT_NE(error(R"({"type":"object","required":["x"],"properties":{}})").find("'x'"), std::string::npos);
  EXPECT_NE(error(R"({"type":"object","properties":{"a":{"enum":["5",5]}}})").find("'5'"), std::string::npos);
  EXPECT_NE(error(R"({"type":"object","properties":{"a":{"type":"array","items":{"$ref":"#/nowhere"}}}})").find("#/nowhere"),
            std::string::npos);
  EXPECT_NE(error(R"({"anyOf":[{},{}]})").find("anyOf"), std::string::npos);
}

}  // namespace
}  // namespace baton::text

int main(int argc, char** argv) { return baton::text::run_tests_or_worker(argc, argv); }
