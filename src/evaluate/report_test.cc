#include "evaluate/report.h"

#include <gtest/gtest.h>

#include <functional>

#include "evaluate/comparison.h"

namespace baton::evaluate {
namespace {

Outcome outcome(const std::string& id, const std::string& task, std::optional<bool> right, const std::string& content = "x") {
  Outcome o;
  o.id = id;
  o.task = task;
  o.fingerprint = std::hash<std::string>{}(id);
  o.right = right;
  o.answer.content = content;
  o.finish = "stop";
  o.prompt_tokens = 10;
  o.completion_tokens = 4;
  o.seconds = 0.5;
  return o;
}

Report sample() {
  Report r;
  r.seconds = 2;
  r.settings["model"] = "small";
  r.outcomes = {outcome("a:1", "sums", true), outcome("a:2", "sums", false), outcome("b:1", "recall", true), outcome("c:1", "chat", {})};
  r.outcomes[0].group = "plain";
  r.outcomes[1].group = "hard";
  r.outcomes[1].finish = "length";
  r.outcomes[2].length = 512;
  r.outcomes[2].answer.calls = {{"f", "{}"}};
  r.outcomes[2].answer.reasoning = "why";
  Outcome failed = outcome("b:2", "recall", {}, "");
  failed.length = 512;
  failed.failure = "no server";
  failed.prompt_tokens = failed.completion_tokens = 0;
  r.outcomes.push_back(failed);
  return r;
}

TEST(Report, TablesByTaskGroupAndLength) {
  EXPECT_EQ(text_of(sample()),
            "task     questions  right  accuracy      95 % interval  cut  failed  tokens each  seconds each\n"
            "sums             2      1    50.0 %    9.5 % to 90.5 %    1       0          4.0          0.50\n"
            "  hard           1      0     0.0 %    0.0 % to 79.3 %    1       0          4.0          0.50\n"
            "  plain          1      1   100.0 %  20.7 % to 100.0 %    0       0          4.0          0.50\n"
            "recall           2      1   100.0 %  20.7 % to 100.0 %    0       1          4.0          0.50\n"
            "chat             1      -         -                  -    0       0          4.0          0.50\n"
            "all              5      2    66.7 %   20.8 % to 93.9 %    1       1          4.0          0.50\n"
            "\n"
            "prompt tokens  questions  right  accuracy      95 % interval  cut  failed  tokens each  seconds each\n"
            "512                    2      1   100.0 %  20.7 % to 100.0 %    0       1          4.0          0.50\n"
            "\n"
            "5 questions in 2.0 s; 40 prompt tokens, 0 of them cached; 16 tokens generated\n");
}

TEST(Report, SaysWhatDraftsGaveWhereThereWereSome) {
  Report r = sample();
  r.outcomes[0].completion_tokens = 13;
  r.outcomes[0].drafted_tokens = 14;
  r.outcomes[0].accepted_tokens = 10;  // two cycles behind the first token: 12 tokens
  EXPECT_EQ(text_of(r).substr(0, text_of(r).find("recall")),
            "task     questions  right  accuracy      95 % interval  cut  failed  tokens each  seconds each  tokens a cycle\n"
            "sums             2      1    50.0 %    9.5 % to 90.5 %    1       0          8.5          0.50            3.00\n"
            "  hard           1      0     0.0 %    0.0 % to 79.3 %    1       0          4.0          0.50            1.00\n"
            "  plain          1      1   100.0 %  20.7 % to 100.0 %    0       0         13.0          0.50            6.00\n");
}

TEST(Report, ComesBackFromJson) {
  Report report = sample();
  report.outcomes[0].drafted_tokens = 7;
  report.outcomes[0].accepted_tokens = 2;
  const auto again = parse_report(json_of(report), "r.json");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(json_of(*again), json_of(report));
  EXPECT_EQ(again->outcomes[2].answer.reasoning, "why");
  EXPECT_EQ(again->outcomes[2].answer.calls.size(), 1u);
  EXPECT_EQ(again->failed(), 1);
}

TEST(Report, RefusesWhatItDidNotWrite) {
  for (const std::string_view text : {"", "{", "[]", "{}", R"({"questions": 1})", R"({"questions": [1]})", R"({"questions": [{"id": 1}]})",
                                      R"({"questions": [{"id": "a", "task": "t", "fingerprint": "0", "right": "yes"}]})"}) {
    const auto r = parse_report(text, "r.json");
    ASSERT_FALSE(r.ok()) << text;
    EXPECT_TRUE(r.error().message.starts_with("r.json: ")) << r.error().message;
  }
}

TEST(Comparison, CountsQuestionByQuestion) {
  Report a, b;
  for (int i = 0; i < 10; ++i) {
    const std::string id = "s:" + std::to_string(i);
    a.outcomes.push_back(outcome(id, i < 5 ? "one" : "two", i != 0));
    b.outcomes.push_back(outcome(id, i < 5 ? "one" : "two", i < 4, i == 9 ? "y" : "x"));
  }
  a.outcomes.push_back(outcome("only a", "one", true));
  b.outcomes.push_back(outcome("only b", "one", true));
  a.outcomes.push_back(outcome("unscored", "one", {}));
  b.outcomes.push_back(outcome("unscored", "one", {}));
  const auto c = compare(a, b);
  ASSERT_TRUE(c.ok()) << c.error().message;
  ASSERT_EQ(c->rows.size(), 3u);
  const Contrast& all = c->rows.back();
  EXPECT_EQ(all.both, 3);
  EXPECT_EQ(all.only_first, 6);
  EXPECT_EQ(all.only_second, 1);
  EXPECT_EQ(all.neither, 0);
  EXPECT_EQ(all.same_text, 9);
  EXPECT_EQ(c->left_out, 3);
  EXPECT_EQ(c->differing.size(), 7u);
  const std::string text = text_of(*c, "a.json", "b.json");
  EXPECT_NE(text.find("A: a.json"), std::string::npos);
  EXPECT_NE(text.find("0.125"), std::string::npos) << text;  // 2 * (1 + 7) / 128
}

TEST(Comparison, ShowsLengthsBehindTheirTask) {
  Report a, b;
  for (const int64_t length : {512, 8192, 256, 512, 0}) {
    Outcome o = outcome("q" + std::to_string(a.outcomes.size()), length == 0 ? "sums" : "recall", true);
    o.length = length;
    a.outcomes.push_back(o);
    o.right = length < 8192;
    b.outcomes.push_back(o);
  }
  const auto c = compare(a, b);
  ASSERT_TRUE(c.ok()) << c.error().message;
  std::string rows;
  for (const Contrast& r : c->rows)
    rows += r.name + " " + std::to_string(r.length) + ": " + std::to_string(r.both) + " of " + std::to_string(r.questions()) + "\n";
  EXPECT_EQ(rows, "recall 0: 3 of 4\nrecall 256: 1 of 1\nrecall 512: 2 of 2\nrecall 8192: 0 of 1\nsums 0: 1 of 1\nall 0: 4 of 5\n");
}

TEST(Comparison, RefusesOtherQuestions) {
  Report a, b;
  a.outcomes = {outcome("s:1", "one", true)};
  b.outcomes = {outcome("s:1", "one", true)};
  EXPECT_TRUE(compare(a, b).ok());
  b.outcomes[0].fingerprint ^= 1;
  EXPECT_FALSE(compare(a, b).ok());
  b.outcomes = {outcome("s:2", "one", true)};
  EXPECT_FALSE(compare(a, b).ok());
}

}  // namespace
}  // namespace baton::evaluate
