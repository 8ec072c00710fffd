// Two results of the same questions, question by question.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evaluate/report.h"

namespace baton::evaluate {

struct Contrast {
  std::string name;                                                // a task, or "all"
  int64_t length = 0;                                              // of the questions of that task and length alone
  int64_t both = 0, only_first = 0, only_second = 0, neither = 0;  // right answers
  int64_t same_text = 0;                                           // answers that are equal, reasoning and calls included

  int64_t questions() const { return both + only_first + only_second + neither; }
};

struct Comparison {
  std::vector<Contrast> rows;          // tasks in the order of the first, each followed by its lengths; "all" at the end
  int64_t left_out = 0;                // questions that only one holds, or that one of them has no scored answer to
  std::vector<std::string> differing;  // ids of those that only one answered rightly
};

// Questions are matched by id. Refuses where a question of one id differs, and where nothing is left to compare.
Result<Comparison> compare(const Report& first, const Report& second);
// `first` and `second` name the two.
std::string text_of(const Comparison& comparison, const std::string& first, const std::string& second);

}  // namespace baton::evaluate
