// What came out of a set of questions: as tables for people, as JSON for programs, and back.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "evaluate/answer_check.h"
#include "evaluate/question_set.h"

namespace baton::evaluate {

struct Outcome {
  // Of the question.
  std::string id, task, group;
  int64_t length = 0;
  uint64_t fingerprint = 0;

  Answer answer;
  std::string finish;         // why the answer ended, in the API's words; "length" is an answer that was cut
  std::string failure;        // why there is no answer; empty: there is one
  std::optional<bool> right;  // none where it is not scored or failed
  int64_t prompt_tokens = 0, cached_tokens = 0, completion_tokens = 0;
  int64_t drafted_tokens = 0, accepted_tokens = 0;  // 0: nobody drafted, or nobody says; accepted ones are of completion_tokens
  double seconds = 0;                               // from asking to the last token, queueing included
};

// An outcome with the question's part filled in.
Outcome outcome_of(const Question& question);

struct Report {
  boost::json::object settings;  // what was asked, and how; only shown
  double seconds = 0;            // from the first question to the last answer
  std::vector<Outcome> outcomes;

  int64_t failed() const;
};

// Per task, then per group where a task has several, then per length and task where there are lengths. Where tokens were drafted, also how
// many tokens of text a cycle gave behind an answer's first.
std::string text_of(const Report& report);

// One object; its "questions" hold an object for each outcome.
std::string json_of(const Report& report);
// What json_of wrote. `where` names it in messages.
Result<Report> parse_report(std::string_view json, const std::string& where);

// Rows of equal columns; the first is set to the left, the others to the right. Lines end in '\n'.
std::string table_of(const std::vector<std::vector<std::string>>& rows);
std::string percent(double share);

}  // namespace baton::evaluate
