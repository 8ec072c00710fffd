// Questions with known answers, read from JSONL files.
//
// A line is an object: GSM8K's {"question", "answer"}, where the number behind the last "####" of the answer counts, or
// {"messages", "tools", "answer", "check"}. "task", "group" and "length" say which rows of the tables it belongs to; the task is the file's
// name if not given. {"text": NAME, "value": ...} defines a text, and the content of a message may be a list of texts and
// [NAME, begin, end], bytes of one.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace baton::evaluate {

enum class Check : uint8_t {
  kNumber,    // the last number of the answer
  kText,      // the whole answer, but for white space around it
  kContains,  // a part of the answer
  kJson,      // an equal JSON value, whatever the order of keys; may stand in a code fence
  kTools,     // the same calls, in any order
  kNone       // nothing: asked for the sake of figures
};
std::string_view name_of(Check check);

struct Question {
  std::string id;  // "arithmetic.jsonl:12"
  std::string task;
  std::string group;   // a part of the task; may be empty
  int64_t length = 0;  // of the prompt in tokens, about; 0: unknown
  Check check = Check::kText;
  boost::json::value answer;
  boost::json::object request;  // "messages" and, if there are any, "tools", as in a chat request
  uint64_t fingerprint = 0;     // of the request, the check and the answer
};

// `name` stands in ids and messages.
Result<std::vector<Question>> parse_question_set(std::string_view jsonl, const std::string& name);
// All of the files; refuses two of one name, whose ids could not be told apart. `most` of each file, evenly
// spread over it; 0: all.
Result<std::vector<Question>> read_question_sets(const std::vector<std::string>& files, int64_t most);

}  // namespace baton::evaluate
