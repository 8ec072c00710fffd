// Whether an answer is right.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evaluate/question_set.h"

namespace baton::evaluate {

struct Call {
  std::string name;
  std::string arguments;  // JSON text
};

// What a model answered, as a chat API tells it.
struct Answer {
  std::string content;
  std::string reasoning;
  std::vector<Call> calls;
};

// None for questions that are not scored. Reasoning never counts; calls where none are asked for are wrong.
std::optional<bool> is_right(const Question& question, const Answer& answer);

// The last number in a text, thousands separated by commas or not.
std::optional<double> last_number(std::string_view text);
// Equal values; numbers by value, objects in any order.
bool same_json(const boost::json::value& a, const boost::json::value& b);

}  // namespace baton::evaluate
