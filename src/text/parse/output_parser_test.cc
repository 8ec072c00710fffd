#include "text/parse/output_parser.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <chrono>

#include "text/parse/cuttings.h"

namespace baton::text {
namespace {

using Kind = OutputEvent::Kind;

ToolTypes some_tools() {
  ToolTypes tools;
  tools.add("f", boost::json::parse(R"({"properties": {"s": {"type": "string"}, "n": {"type": "integer"}, "o": {"type": "object"},
                                         "l": {"type": ["string", "null"]}, "u": {"anyOf": [{"type": "integer"}, {"type": "string"}]}}})"));
  return tools;
}

std::string shown(const std::vector<OutputEvent>& events) {
  std::string text;
  for (const OutputEvent& e : events) {
    constexpr const char* kNames[] = {"R", "C", "S", "A", "E", "F"};
    text += kNames[static_cast<size_t>(e.kind)] + (e.tool_index < 0 ? "" : std::to_string(e.tool_index)) + "(" +
            (e.kind == Kind::kFinish ? std::string(name_of(e.finish)) : e.text) + ")";
  }
  return text;
}

std::string parsed(std::string_view text, bool reasoning = false, FinishReason engine = FinishReason::kStop) {
  const ToolTypes tools = some_tools();
  return shown(parse_pieces(OutputMarkup(), {.starts_in_reasoning = reasoning, .tools = &tools}, {text}, engine));
}

TEST(OutputParser, EventsStandInOrder) {
  EXPECT_EQ(parsed("why\n</think>\n\nSo:\n<tool_call>f<arg_key>s</arg_key><arg_value>a\"b</arg_value><arg_key>n</arg_key><arg_value>3"
                   "</arg_value></tool_call>\nDone.\n",
                   true),
            "R(why)C(So:)S0(f)A0({\"s\":\"a\\\"b\",\"n\":3})E0()C(\n\nDone.)F(tool_calls)");
  EXPECT_EQ(parsed("<tool_call>f</tool_call><tool_call>g</tool_call>", true), "S0(f)A0({})E0()S1(g)A1({})E1()F(tool_calls)");
}

TEST(OutputParser, WhatNeverBecameACallIsText) {
  EXPECT_EQ(parsed("<tool_call>f <b> </tool_call>x"), "C(<tool_call>f <b> </tool_call>x)F(stop)");
  EXPECT_EQ(parsed("a <tool_call>f<tool_call>f</tool_call></tool_call>"), "C(a <tool_call>f)S0(f)A0({})E0()F(tool_calls)");
  EXPECT_EQ(parsed("<tool_call>f<arg_key>s</arg_key><arg_value>", false, FinishReason::kLength),
            "C(<tool_call>f<arg_key>s</arg_key><arg_value>)F(length)");
  EXPECT_EQ(parsed("let me <tool_call>f.</think>Hi", true), "R(let me <tool_call>f.)C(Hi)F(stop)");
  EXPECT_EQ(parsed("<tool_call>" + std::string(5000, 'f') + "</tool_call>"),
            "C(<tool_call>" + std::string(5000, 'f') + "</tool_call>)F(stop)");
}

TEST(OutputParser, ABegunCallIsRepaired) {
  const std::string head = "<tool_call>f<arg_key>s</arg_key><arg_value>x</arg_value>";
  EXPECT_EQ(parsed(head + "<arg_key>n<arg_value>2</arg_value></tool_call>"), "S0(f)A0({\"s\":\"x\",\"n\":2})E0()F(tool_calls)");
  EXPECT_EQ(parsed(head + "<arg_key>n</arg_key> 2</arg_value></tool_call>"), "S0(f)A0({\"s\":\"x\",\"n\":2})E0()F(tool_calls)");
  EXPECT_EQ(parsed(head + "<arg_key>n</tool_call>y"), "S0(f)A0({\"s\":\"x\"})E0()C(y)F(tool_calls)");
  // The close was lost: what follows is not.
  EXPECT_EQ(parsed(head + "That is all."), "S0(f)A0({\"s\":\"x\"})E0()C(That is all.)F(tool_calls)");
  EXPECT_EQ(parsed(head + "And:<tool_call>f</tool_call>"), "S0(f)A0({\"s\":\"x\"})E0()C(And:)S1(f)A1({})E1()F(tool_calls)");
  EXPECT_EQ(parsed(head + "</think>Hi"), "S0(f)A0({\"s\":\"x\"})E0()C(Hi)F(tool_calls)");
  EXPECT_EQ(parsed(head + std::string(3000, 'x')), "S0(f)A0({\"s\":\"x\"})E0()C(" + std::string(3000, 'x') + ")F(tool_calls)");
  EXPECT_EQ(parsed(head + "<arg_key>" + std::string(5000, 'k')),
            "S0(f)A0({\"s\":\"x\"})E0()C(<arg_key>" + std::string(5000, 'k') + ")F(tool_calls)");
}

TEST(OutputParser, ValuesBecomeWhatTheirSchemaSays) {
  const auto value = [](const std::string& key, const std::string& text) {
    const std::string all = parsed("<tool_call>f<arg_key>" + key + "</arg_key><arg_value>" + text + "</arg_value></tool_call>");
    const std::string before = "S0(f)A0({\"" + key + "\":", after = "})E0()F(tool_calls)";
    EXPECT_TRUE(all.starts_with(before) && all.ends_with(after)) << all;
    return all.substr(before.size(), all.size() - before.size() - after.size());
  };
  EXPECT_EQ(value("s", "12"), "\"12\"");
  EXPECT_EQ(value("s", ""), "\"\"");
  EXPECT_EQ(value("n", " 12345678901234567890123 "), "12345678901234567890123");
  EXPECT_EQ(value("n", "twelve"), "\"twelve\"");
  EXPECT_EQ(value("l", "null"), "null");
  EXPECT_EQ(value("l", "nullable"), "\"nullable\"");
  EXPECT_EQ(value("l", "nul"), "\"nul\"");
  EXPECT_EQ(value("u", "5"), "5");
  EXPECT_EQ(value("u", "5.5"), "\"5.5\"");
  EXPECT_EQ(value("u", "\"5\""), "\"\\\"5\\\"\"");
  EXPECT_EQ(value("unknown", "\"5\""), "\"5\"");
  EXPECT_EQ(value("unknown", R"({"a": "\ud800"})"), R"({"a": "\ufffd"})");
  const std::string big = "[" + std::string(ArgumentWriter::kMostValueBytes, ' ') + "]";
  EXPECT_EQ(value("o", big), "\"" + big + "\"");
}

TEST(OutputParser, TextComesWhenItIsCertain) {
  const ToolTypes tools = some_tools();
  OutputParser parser(OutputMarkup(), {.starts_in_reasoning = true, .tools = &tools});
  const auto add = [&](std::string_view text) {
    std::vector<OutputEvent> events;
    parser.add_text(text, events);
    return shown(events);
  };
  EXPECT_TRUE(parser.in_reasoning());
  EXPECT_EQ(add("a <"), "R(a)");
  EXPECT_EQ(add("b </thi"), "R( <b)");
  EXPECT_EQ(add("nk>x"), "C(x)");
  EXPECT_FALSE(parser.in_reasoning());
  EXPECT_EQ(add(" \xC3"), "");
  EXPECT_EQ(add("\xA9"), "C( \xC3\xA9)");
  EXPECT_EQ(add("<tool_call>f<arg_key>s</arg_key><arg_value>"), "");
  EXPECT_EQ(add("v"), "S0(f)A0({\"s\":\"v)");
  EXPECT_EQ(add("w</arg_value><arg_key>n</arg_key><arg_value>1"), "A0(w\")");
  EXPECT_EQ(add("2"), "");
  EXPECT_EQ(add("</arg_value>"), "A0(,\"n\":12)");
  EXPECT_EQ(add("</tool_call>"), "A0(})E0()");
}

TEST(OutputParser, BrokenTextIsReplaced) {
  const OutputMarkup markup;
  const std::string text = "a\xFF</think>\xE2\x82<b\xF0\x9F";
  const auto whole = parse_pieces(markup, {.starts_in_reasoning = true}, {text}, FinishReason::kStop);
  EXPECT_EQ(shown(whole), "R(a\xEF\xBF\xBD)C(\xEF\xBF\xBD<b\xEF\xBF\xBD)F(stop)");
  EXPECT_EQ(parse_pieces(markup, {.starts_in_reasoning = true}, by_byte(text), FinishReason::kStop), whole);
}

TEST(OutputParser, ThePromptSaysWhereOutputBegins) {
  EXPECT_TRUE(opens_reasoning("<|user|>hi<|assistant|><think>"));
  EXPECT_TRUE(opens_reasoning("<|user|>hi<|assistant|><think>so far"));
  EXPECT_FALSE(opens_reasoning("<|user|>hi<|assistant|><think></think>Hel"));
  EXPECT_FALSE(opens_reasoning("<|user|>what is <think>?<|assistant|>"));
  EXPECT_FALSE(opens_reasoning(""));
  const auto tokenizer = Tokenizer::load(BATON_TEST_DATA "/tokenizers/glm-like.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const OutputMarkup markup(*tokenizer);
  const auto opens = [&](std::string_view text) {
    const auto ids = tokenizer->encode(text);
    return ids.ok() && markup.opens_reasoning(*ids, *tokenizer);
  };
  EXPECT_TRUE(opens("<|user|>hi<|assistant|><think>"));
  EXPECT_TRUE(opens("<|user|>hi<|assistant|><think>so far"));
  EXPECT_FALSE(opens("<|user|>hi<|assistant|><think></think>Hel"));
  EXPECT_FALSE(opens("<|user|>hi<think><|assistant|>"));
  // Text that a user wrote and that never became the token.
  const auto spelled = tokenizer->encode("<think>", {.added_tokens = AddedTokens::kNone});
  ASSERT_TRUE(spelled.ok());
  EXPECT_FALSE(markup.opens_reasoning(*spelled, *tokenizer));
}

// Random output: pieces of markup, names, values, white space, half characters.
std::string random_output(std::mt19937_64& random) {
  static const std::vector<std::string> kParts = {"<think>",
                                                  "</think>",
                                                  "<tool_call>",
                                                  "</tool_call>",
                                                  "<arg_key>",
                                                  "</arg_key>",
                                                  "<arg_value>",
                                                  "</arg_value>",
                                                  "f",
                                                  "f",
                                                  "g.h",
                                                  "s",
                                                  "n",
                                                  "o",
                                                  "l",
                                                  "u",
                                                  "null",
                                                  "12",
                                                  "-",
                                                  "{\"a\": [1",
                                                  "]}",
                                                  "\"",
                                                  " ",
                                                  "\n",
                                                  "  \n ",
                                                  "<",
                                                  "</",
                                                  "<tool_",
                                                  "</arg_v",
                                                  "text",
                                                  "two words",
                                                  "\xC3\xA9",
                                                  "\xF0\x9F\x8F\xBD",
                                                  "\xE2\x82",
                                                  "\xFF",
                                                  "\\",
                                                  std::string(1, '\0'),
                                                  std::string(1100, ' '),
                                                  std::string(4100, 'x'),
                                                  "<tool_call>f<arg_key>s</arg_key><arg_value>v",
                                                  "</arg_value><arg_key>n</arg_key><arg_value>",
                                                  "</arg_value></tool_call>",
                                                  "<tool_call>f<arg_key>s</arg_key><arg_value></arg_value>"};
  std::string text;
  for (uint64_t n = random() % 16; n > 0; --n) text += kParts[random() % kParts.size()];
  return text;
}

// The rules that events keep whatever the output was.
void expect_sound(const std::vector<OutputEvent>& events, const std::string& text) {
  std::string arguments;
  int32_t calls = 0;
  bool open = false;
  for (size_t i = 0; i < events.size(); ++i) {
    const OutputEvent& e = events[i];
    ASSERT_EQ(e.kind == Kind::kFinish, i + 1 == events.size()) << text;
    ASSERT_TRUE(valid_utf8(e.text)) << text;
    ASSERT_EQ(open, e.kind == Kind::kToolArguments || e.kind == Kind::kToolEnd) << text;
    if (e.kind == Kind::kToolStart) {
      ASSERT_EQ(e.tool_index, calls++) << text;
      arguments.clear();
      open = true;
    }
    if (e.kind == Kind::kToolArguments) arguments += e.text;
    if (e.kind == Kind::kToolEnd) {
      ASSERT_EQ(json_kind(arguments), JsonKind::kObject) << text << "\n" << arguments;
      open = false;
    }
  }
}

TEST(OutputParser, EventsDoNotDependOnTheCutting) {
  constexpr uint64_t kSeed = 5;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  const ToolTypes tools = some_tools();
  const OutputMarkup markup;
  constexpr FinishReason kReasons[] = {FinishReason::kStop, FinishReason::kLength, FinishReason::kAbort};
  int calls = 0;
  for (int i = 0; i < 8000; ++i) {
    const std::string text = random_output(random);
    const FinishReason engine = kReasons[random() % 3];
    const OutputParser::Options options{.starts_in_reasoning = random() % 2 == 0, .tools = random() % 8 == 0 ? nullptr : &tools};
    const auto whole = parse_pieces(markup, options, {text}, engine);
    expect_sound(whole, text);
    if (HasFatalFailure()) return;
    for (const Pieces& pieces : {by_byte(text), by_character(text), at_random(text, random, 3), at_random(text, random, 40)})
      ASSERT_EQ(shown(parse_pieces(markup, options, pieces, engine)), shown(whole)) << text;
    for (const OutputEvent& e : whole) calls += e.kind == Kind::kToolStart ? 1 : 0;
  }
  EXPECT_GT(calls, 1000);
}

// Without markup nothing is lost or added but layout: blank lines before, white space after.
TEST(OutputParser, PlainTextStaysAsItIs) {
  constexpr uint64_t kSeed = 6;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  const ToolTypes tools = some_tools();
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    for (uint64_t n = random() % 20; n > 0; --n)
      text += std::vector<std::string>{"a", " ", "\n", "<", "</think", ">", "<tool_call", "\t", "\xC3\xA9"}[random() % 8];
    if (text.find("</think>") != std::string::npos || text.find("<tool_call>") != std::string::npos) continue;
    std::string content;
    for (const OutputEvent& e : parse_pieces(OutputMarkup(), {.tools = &tools}, at_random(text, random, 4), FinishReason::kStop))
      content += e.text;
    const size_t first = text.find_first_not_of(" \n\t");
    std::string wanted;
    if (first != std::string::npos) {
      const size_t line = text.rfind('\n', first);
      wanted = text.substr(line == std::string::npos ? 0 : line + 1);
      wanted.resize(wanted.find_last_not_of(" \n\t") + 1);
    }
    ASSERT_EQ(content, wanted) << text;
  }
}

// A schema that refers to itself twice is walked through thousands of times: what each walk looks at is bounded, too.
TEST(OutputParser, ReadsHostileSchemasSoon) {
  std::string values, names;
  for (int i = 0; i < 200'000; ++i) {
    values += ",1";
    names += ",\"p" + std::to_string(i) + "\":true";
  }
  values[0] = names[0] = ' ';
  const std::string again = R"("anyOf": [{"$ref": "#/d"}, {"$ref": "#/d"}])", of_d = R"("properties": {"a": {"$ref": "#/d"}})";
  for (const std::string& schema : {"{" + of_d + R"(, "d": {"enum": [)" + values + "], " + again + "}}",
                                    "{" + of_d + R"(, "d": {"type": [)" + values + "], " + again + "}}",
                                    R"({"properties": {)" + names + R"(}, "anyOf": [{"$ref": "#"}, {"$ref": "#"}]})"}) {
    const auto parsed = boost::json::parse(schema);
    ToolTypes tools;
    const auto start = std::chrono::steady_clock::now();
    tools.add("f", parsed);
    // A second at most; minutes if only steps through references counted.
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 10.0) << schema.substr(0, 60);
  }
  // As long as a list of the honest ever is.
  ToolTypes tools;
  tools.add("f", boost::json::parse(R"({"properties": {"a": {"enum": [)" + values + "]}}}"));
  EXPECT_EQ(tools.type("f", "a"), ArgumentType::of(JsonKind::kInteger));
}

TEST(OutputParser, TakesLinearTime) {
  const ToolTypes tools = some_tools();
  const std::string head = "<tool_call>f<arg_key>s</arg_key><arg_value>";
  const auto seconds = [&](const std::string& unit, size_t bytes, const std::string& before) {
    std::string text = before;
    while (text.size() < bytes) text += unit;
    const auto start = std::chrono::steady_clock::now();
    parse_pieces(OutputMarkup(), {.starts_in_reasoning = true, .tools = &tools}, by_byte(text), FinishReason::kStop);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (const std::string unit :
       {"<", " ", "<tool_call>", "<tool_call>f", "</tool_call>", "<think>", "</think>", "{", "<arg_value>", "\n\n"})
    for (const std::string& before :
         {std::string(), head, head + "</arg_value>", "<tool_call>f<arg_key>o</arg_key><arg_value>[" + std::string()}) {
      // Eight times the text in less than forty times the time: quadratic would be 64 times, and far above the floor that hides noise.
      const double small = seconds(unit, 25000, before), large = seconds(unit, 200000, before);
      EXPECT_LT(large, std::max(40 * small, 2.0)) << unit << " after " << before;
    }
}

}  // namespace
}  // namespace baton::text
