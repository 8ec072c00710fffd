#include "evaluate/answer_check.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <cstdlib>

namespace baton::evaluate {
namespace {

namespace json = boost::json;

bool digit(char c) { return c >= '0' && c <= '9'; }

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) + 1 - begin);
}

// The inside of a code fence, or the text itself.
std::string_view unfenced(std::string_view text) {
  text = trimmed(text);
  if (!text.starts_with("```") || !text.ends_with("```") || text.size() < 6) return text;
  const size_t line = text.find('\n');
  if (line == std::string_view::npos) return text;
  return trimmed(text.substr(line, text.size() - 3 - line));
}

std::optional<json::value> parsed(std::string_view text) {
  boost::system::error_code failed;
  json::value value = json::parse(json::string_view(text.data(), text.size()), failed);
  if (failed) return std::nullopt;
  return value;
}

bool same_call(const Call& call, const json::object& expected) {
  if (call.name != std::string_view(expected.at("name").as_string())) return false;
  const auto arguments = parsed(call.arguments.empty() ? "{}" : call.arguments);
  return arguments && same_json(*arguments, expected.at("arguments"));
}

// One call for each that is expected, and none left.
bool same_calls(const std::vector<Call>& calls, const json::array& expected) {
  std::vector<const Call*> left;
  for (const Call& c : calls) left.push_back(&c);
  for (const json::value& e : expected) {
    const auto found = std::find_if(left.begin(), left.end(), [&](const Call* c) { return same_call(*c, e.as_object()); });
    if (found == left.end()) return false;
    left.erase(found);
  }
  return left.empty();
}

}  // namespace

std::optional<double> last_number(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && !digit(text[end - 1])) --end;
  if (end == 0) return std::nullopt;
  // Backwards over digits, points and commas that stand between digits.
  size_t begin = end;
  while (begin > 0 &&
         (digit(text[begin - 1]) || ((text[begin - 1] == ',' || text[begin - 1] == '.') && begin > 1 && digit(text[begin - 2]))))
    --begin;
  if (begin > 0 && text[begin - 1] == '-') --begin;
  std::string number(text.substr(begin, end - begin));
  std::erase(number, ',');
  return std::strtod(number.c_str(), nullptr);
}

bool same_json(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) return a == b || a.to_number<double>() == b.to_number<double>();
  if (a.kind() != b.kind()) return false;
  if (a.is_array()) {
    const json::array &x = a.get_array(), &y = b.get_array();
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), same_json);
  }
  if (a.is_object()) {
    const json::object &x = a.get_object(), &y = b.get_object();
    return x.size() == y.size() && std::all_of(x.begin(), x.end(), [&](const json::key_value_pair& entry) {
             const json::value* other = y.if_contains(entry.key());
             return other != nullptr && same_json(entry.value(), *other);
           });
  }
  return a == b;
}

std::optional<bool> is_right(const Question& question, const Answer& answer) {
  if (question.check == Check::kNone) return std::nullopt;
  if (question.check == Check::kTools) return same_calls(answer.calls, question.answer.as_array());
  if (!answer.calls.empty()) return false;
  if (question.check == Check::kJson) {
    const auto value = parsed(unfenced(answer.content));
    return value && same_json(*value, question.answer);
  }
  const std::string_view expected = trimmed(std::string_view(question.answer.as_string()));
  if (question.check == Check::kText) return trimmed(answer.content) == expected;
  if (question.check == Check::kContains) return answer.content.find(expected) != std::string::npos;
  const auto number = last_number(answer.content), right = last_number(expected);
  return number && right && *number == *right;
}

}  // namespace baton::evaluate
