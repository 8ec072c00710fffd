#include "evaluate/answer_check.h"

#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

namespace baton::evaluate {
namespace {

Question asked(Check check, std::string_view answer) {
  Question q;
  q.check = check;
  q.answer = boost::json::parse(boost::json::string_view(answer.data(), answer.size()));
  return q;
}

bool right(Check check, std::string_view answer, const std::string& content, std::vector<Call> calls = {}) {
  const auto r = is_right(asked(check, answer), {content, "", std::move(calls)});
  EXPECT_TRUE(r.has_value());
  return r.value_or(false);
}

TEST(AnswerCheck, TheLastNumberCounts) {
  EXPECT_EQ(last_number("4 and 12."), 12);
  EXPECT_EQ(last_number("It costs $1,234.50"), 1234.5);
  EXPECT_EQ(last_number("3, 4"), 4);
  EXPECT_EQ(last_number("-7 degrees"), -7);
  EXPECT_EQ(last_number("The answer is 42,"), 42);
  EXPECT_EQ(last_number("none"), std::nullopt);
  EXPECT_EQ(last_number(""), std::nullopt);
  EXPECT_TRUE(right(Check::kNumber, R"(" 1,000")", "So we have 1000 apples."));
  EXPECT_TRUE(right(Check::kNumber, R"("18")", "18.0"));
  EXPECT_FALSE(right(Check::kNumber, R"("18")", "18 of 20"));
  EXPECT_FALSE(right(Check::kNumber, R"("18")", ""));
}

TEST(AnswerCheck, TextIsComparedWholeButForSpaceAround) {
  EXPECT_TRUE(right(Check::kText, R"("a, b")", "\na, b "));
  EXPECT_FALSE(right(Check::kText, R"("a, b")", "a, b."));
  EXPECT_TRUE(right(Check::kContains, R"("Paris")", "It is Paris."));
  EXPECT_FALSE(right(Check::kContains, R"("Paris")", "It is Rome."));
}

TEST(AnswerCheck, JsonIsComparedByValue) {
  EXPECT_TRUE(right(Check::kJson, R"({"a": 1, "b": [true, null]})", R"({"b":[true,null],"a":1.0})"));
  EXPECT_TRUE(right(Check::kJson, R"({"a": 1})", "```json\n{\"a\": 1}\n```"));
  EXPECT_FALSE(right(Check::kJson, R"({"a": 1})", R"({"a": "1"})"));
  EXPECT_FALSE(right(Check::kJson, R"({"a": 1})", R"({"a": 1, "b": 2})"));
  EXPECT_FALSE(right(Check::kJson, R"({"a": 1, "b": 2})", R"({"a": 1})"));
  EXPECT_FALSE(right(Check::kJson, R"([1, 2])", "[1, 2"));
  EXPECT_FALSE(right(Check::kJson, R"([1, 2])", "[2, 1]"));
}

TEST(AnswerCheck, CallsAreComparedInAnyOrder) {
  const std::string two = R"([{"name": "f", "arguments": {"a": "x"}}, {"name": "f", "arguments": {"a": "y"}}])";
  const Call x{"f", R"({"a":"x"})"}, y{"f", R"({"a": "y"})"};
  EXPECT_TRUE(right(Check::kTools, two, "", {y, x}));
  EXPECT_FALSE(right(Check::kTools, two, "", {x, x}));
  EXPECT_FALSE(right(Check::kTools, two, "", {x}));
  EXPECT_FALSE(right(Check::kTools, two, "", {x, y, y}));
  EXPECT_FALSE(right(Check::kTools, R"([{"name": "f", "arguments": {"a": 1}}])", "", {{"f", R"({"a":"1"})"}}));
  EXPECT_FALSE(right(Check::kTools, R"([{"name": "f", "arguments": {"a": 1}}])", "", {{"f", "{\"a\":"}}));
  EXPECT_TRUE(right(Check::kTools, R"([{"name": "now", "arguments": {}}])", "", {{"now", ""}}));
  // A call where an answer was asked for is no answer.
  EXPECT_FALSE(right(Check::kText, R"("x")", "x", {x}));
}

TEST(AnswerCheck, WhatIsNotScoredIsNeitherRightNorWrong) {
  EXPECT_EQ(is_right(asked(Check::kNone, "null"), {"anything", "", {}}), std::nullopt);
}

}  // namespace
}  // namespace baton::evaluate
