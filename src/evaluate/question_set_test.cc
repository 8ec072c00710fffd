#include "evaluate/question_set.h"

#include <gtest/gtest.h>

#include <boost/json/array.hpp>
#include <filesystem>
#include <random>
#include <set>

namespace baton::evaluate {
namespace {

std::string_view content(const Question& q) { return q.request.at("messages").as_array().back().as_object().at("content").as_string(); }

void expect_refusal(std::string_view line, const std::string& part) {
  const auto r = parse_question_set(line, "set.jsonl");
  ASSERT_FALSE(r.ok()) << line;
  EXPECT_TRUE(r.error().message.starts_with("set.jsonl")) << r.error().message;
  EXPECT_NE(r.error().message.find(part), std::string::npos) << r.error().message;
}

TEST(QuestionSet, ReadsTheFieldsOfGsm8k) {
  const auto r = parse_question_set("\n{\"question\": \"What is 1 + 1?\", \"answer\": \"1 + 1 = 2\\n#### 2\"}\n", "folder/gsm8k.jsonl");
  ASSERT_TRUE(r.ok()) << r.error().message;
  ASSERT_EQ(r->size(), 1u);
  const Question& q = r->front();
  EXPECT_EQ(q.id, "folder/gsm8k.jsonl:2");
  EXPECT_EQ(q.task, "gsm8k");
  EXPECT_EQ(q.check, Check::kNumber);
  EXPECT_EQ(q.answer.as_string(), " 2");
  EXPECT_EQ(content(q), "What is 1 + 1?");
}

TEST(QuestionSet, JoinsContentsOfPieces) {
  const auto r = parse_question_set(R"({"text": "hay", "value": "abcdef"}
{"messages": [{"role": "user", "content": ["<", ["hay", 1, 3], "|", ["hay", 5, 6], ["hay", 2, 2], ">"]}],)"
                                    R"("check": "text", "answer": "x", "length": 9})",
                                    "set.jsonl");
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(content(r->front()), "<bc|f>");
  EXPECT_EQ(r->front().length, 9);
}

TEST(QuestionSet, SaysWhatIsWrongAndWhere) {
  expect_refusal("{", "set.jsonl:1: is not JSON");
  expect_refusal("[]", "set.jsonl:1: is not a JSON object");
  expect_refusal("\n\n", "holds no question");
  expect_refusal("{}\n", "neither a \"question\" nor");
  expect_refusal(R"({"question": "x"})", "\"####\"");
  expect_refusal(R"({"question": 1, "answer": "#### 1"})", "\"question\" is not text");
  expect_refusal(R"({"messages": [{"role": "user"}]})", "\"check\" is missing");
  expect_refusal(R"({"messages": [{"role": "user"}], "check": "vibes"})", "\"vibes\"");
  expect_refusal(R"({"messages": [{"role": "user"}], "check": "text"})", "\"answer\" is missing");
  expect_refusal(R"({"messages": [{"role": "user"}], "check": "text", "answer": 1})", "\"answer\" is not text");
  expect_refusal(R"({"messages": [1], "check": "none"})", "a message is not an object");
  expect_refusal(R"({"messages": [{}], "check": "tools", "answer": [{"name": "f"}]})", "a call without");
  expect_refusal(R"({"messages": [{}], "check": "none", "tools": {}})", "\"tools\" is not a list");
  expect_refusal(R"({"messages": [{}], "check": "none", "length": -1})", "\"length\"");
  expect_refusal(R"({"messages": [{"content": [["hay", 0, 1]]}], "check": "none"})", "no line before defines");
  expect_refusal(R"({"messages": [{"content": [["hay", 0]]}], "check": "none"})", "neither text nor [name, begin, end]");
  expect_refusal(
      "{\"text\": \"hay\", \"value\": \"ab\"}\n"
      R"({"messages": [{"content": [["hay", 1, 3]]}], "check": "none"})",
      "lie outside");
}

TEST(QuestionSet, TheFingerprintFollowsQuestionAndAnswer) {
  const auto print = [](std::string_view line) { return parse_question_set(line, "s").value().front().fingerprint; };
  const uint64_t one = print(R"({"question": "x", "answer": "#### 1"})");
  EXPECT_EQ(one, print(R"({"question": "x", "answer": "#### 1", "task": "other"})"));
  EXPECT_NE(one, print(R"({"question": "x", "answer": "#### 2"})"));
  EXPECT_NE(one, print(R"({"question": "y", "answer": "#### 1"})"));
}

// Damaged files end in questions or in a message, never in a crash.
TEST(QuestionSet, BearsDamage) {
  const std::string whole = R"({"text": "hay", "value": "abcdef"}
{"messages": [{"role": "user", "content": ["<", ["hay", 1, 3], ">"]}], "check": "tools", "answer": [{"name": "f", "arguments": {"a": [1]}}]}
{"question": "x", "answer": "#### 1", "task": "t", "group": "g", "length": 5}
{"messages": [{"role": "user", "content": "y"}], "check": "json", "answer": {"a": 1.5}, "tools": [{"name": "f"}]}
)";
  ASSERT_TRUE(parse_question_set(whole, "s").ok());
  constexpr unsigned kSeed = 7;
  SCOPED_TRACE(kSeed);
  std::mt19937 random(kSeed);
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = whole;
    for (unsigned n = 1 + random() % 3; n > 0; --n) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0: text[at] = "{}[]\":,0-x"[random() % 11]; break;
        case 1: text.erase(at, 1 + random() % 8); break;
        default: text.insert(at, text.substr(random() % text.size(), random() % 12)); break;
      }
    }
    const auto r = parse_question_set(text, "s");
    refused += r.ok() ? 0 : 1;
    if (!r.ok()) continue;
    for (const Question& q : *r) EXPECT_TRUE(q.request.contains("messages"));
  }
  EXPECT_GT(refused, 1000);
  EXPECT_LT(refused, 3900);
}

TEST(QuestionSet, ReadsTheCommittedSets) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(BATON_TEST_DATA "/eval")) files.push_back(entry.path().string());
  const auto r = read_question_sets(files, 0);
  ASSERT_TRUE(r.ok()) << r.error().message;
  std::set<std::string> tasks, ids;
  std::set<uint64_t> prints;
  for (const Question& q : *r) {
    tasks.insert(q.task);
    ids.insert(q.id);
    prints.insert(q.fingerprint);
  }
  EXPECT_EQ(ids.size(), r->size());
  EXPECT_EQ(prints.size(), r->size());
  EXPECT_EQ(tasks, (std::set<std::string>{"arithmetic", "chat", "copy", "json", "lists", "recall", "story", "tools"}));
  files.push_back(files.front());
  EXPECT_FALSE(read_question_sets(files, 0).ok());
  files.pop_back();
  EXPECT_EQ(read_question_sets(files, 3)->size(), 3 * files.size());
}

}  // namespace
}  // namespace baton::evaluate
