#include "text/parse/json_check.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <random>

namespace baton::text {
namespace {

bool boost_takes(std::string_view text) {
  boost::json::error_code error;
  boost::json::parse_options options;
  options.max_depth = kMostJsonDepth;
  boost::json::parse(text, error, {}, options);
  return !error;
}

TEST(JsonCheck, TellsKinds) {
  EXPECT_EQ(json_kind("null"), JsonKind::kNull);
  EXPECT_EQ(json_kind("true"), JsonKind::kBoolean);
  EXPECT_EQ(json_kind("-12"), JsonKind::kInteger);
  EXPECT_EQ(json_kind("123456789012345678901234567890"), JsonKind::kInteger);
  EXPECT_EQ(json_kind("-0.5e+3"), JsonKind::kNumber);
  EXPECT_EQ(json_kind("\"a\\u00e9\""), JsonKind::kString);
  EXPECT_EQ(json_kind("[1, {\"a\": []}]"), JsonKind::kArray);
  EXPECT_EQ(json_kind("{}"), JsonKind::kObject);
  for (const char* text :
       {"",     " 1",  "1 ",   "01",  "-",   "1.",      ".5",     "1e",    "+1",    "[1,]", "{\"a\"}", "{\"a\":1,}", "[-]",
        "[1.]", "nul", "True", "'a'", "\"a", "\"\\x\"", "\"\n\"", "[1 2]", "{1:2}", "1 2",  "]",       "[}"})
    EXPECT_EQ(json_kind(text), std::nullopt) << text;
}

TEST(JsonCheck, DepthIsBounded) {
  const auto nested = [](int depth) { return std::string(static_cast<size_t>(depth), '[') + std::string(static_cast<size_t>(depth), ']'); };
  EXPECT_EQ(json_kind(nested(kMostJsonDepth)), JsonKind::kArray);
  EXPECT_EQ(json_kind(nested(kMostJsonDepth + 1)), std::nullopt);
}

TEST(JsonCheck, AgreesWithAParserOnRandomText) {
  constexpr uint64_t kSeed = 4;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  constexpr const char* kParts[] = {"{", "}", "[",  "]",  ",",    ":",    "\"a\"", "\"\\n\"",           "1",
                                    "0", "-", ".5", "e3", "true", "null", " ",     "\"\\ud83d\\ude00\""};
  int valid = 0;
  for (int i = 0; i < 200000; ++i) {
    std::string text;
    for (uint64_t n = random() % 8 + 1; n > 0; --n) text += kParts[random() % std::size(kParts)];
    const bool spaced = text.front() == ' ' || text.back() == ' ';
    ASSERT_EQ(json_kind(text).has_value(), !spaced && boost_takes(text)) << text;
    valid += json_kind(text).has_value() ? 1 : 0;
  }
  EXPECT_GT(valid, 1000);
}

TEST(JsonCheck, CompletesEveryPrefix) {
  const std::string whole = R"({"a": [1, -2.5e-3, {"b\"": "x\\y\u00e9", "c": []}, true, null, "\ud83d\ude00"], "d": {"e": false}})";
  for (size_t n = 1; n <= whole.size(); ++n) {
    const auto completed = completed_json(std::string_view(whole).substr(0, n));
    const bool in_escape = whole.substr(0, n).find("\\u", n < 6 ? 0 : n - 6) != std::string::npos;
    if (!completed) {
      EXPECT_TRUE(in_escape) << whole.substr(0, n);
      continue;
    }
    EXPECT_TRUE(boost_takes(with_whole_surrogates(*completed))) << *completed;
  }
  EXPECT_EQ(completed_json(R"({"a": [1, 2)"), R"({"a": [1, 2]})");
  EXPECT_EQ(completed_json(R"({"a": 1, )"), R"({"a": 1})");
  EXPECT_EQ(completed_json(R"({"a": 1, "b)"), R"({"a": 1, "b":null})");
  EXPECT_EQ(completed_json(R"(["x\)"), R"(["x\\"])");
  EXPECT_EQ(completed_json("[tr"), "[true]");
  EXPECT_EQ(completed_json("[-"), "[-0]");
  EXPECT_EQ(completed_json("[1,]"), std::nullopt);
  EXPECT_EQ(completed_json("12"), std::nullopt);
}

TEST(JsonCheck, HalvesOfSurrogatesAreReplaced) {
  EXPECT_EQ(json_kind(R"("\ud800")"), JsonKind::kString);
  EXPECT_EQ(with_whole_surrogates(R"("\ud83d\ude00 \ud800\\ud800 \udc00\uD800\ud83D\uDE00 \u00e9")"),
            R"("\ud83d\ude00 \ufffd\\ud800 \ufffd\ufffd\ud83D\uDE00 \u00e9")");
}

TEST(JsonCheck, EscapesWhatJsonForbids) {
  std::string out;
  append_json_escaped(out, std::string_view("a\"b\\c\n\t\r\0\x1F/\xC3\xA9", 13));
  EXPECT_EQ(out, "a\\\"b\\\\c\\n\\t\\r\\u0000\\u001f/\xC3\xA9");
}

}  // namespace
}  // namespace baton::text
