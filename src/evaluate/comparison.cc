#include "evaluate/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "evaluate/statistics.h"

namespace baton::evaluate {
namespace {

bool same_answer(const Answer& a, const Answer& b) {
  return a.content == b.content && a.reasoning == b.reasoning &&
         std::equal(a.calls.begin(), a.calls.end(), b.calls.begin(), b.calls.end(),
                    [](const Call& x, const Call& y) { return x.name == y.name && x.arguments == y.arguments; });
}

void add(Contrast& c, const Outcome& a, const Outcome& b) {
  const bool first = *a.right, second = *b.right;
  ++(first && second ? c.both : first ? c.only_first : second ? c.only_second : c.neither);
  c.same_text += same_answer(a.answer, b.answer) ? 1 : 0;
}

// Lengths stand behind their task in ascending order.
Contrast& row_of(std::vector<Contrast>& rows, const std::string& task, int64_t length) {
  auto row = std::find_if(rows.begin(), rows.end(), [&](const Contrast& c) { return c.name == task; });
  while (row != rows.end() && row->name == task && row->length < length) ++row;
  if (row == rows.end() || row->name != task || row->length != length) row = rows.insert(row, Contrast{.name = task, .length = length});
  return *row;
}

}  // namespace

Result<Comparison> compare(const Report& first, const Report& second) {
  std::map<std::string, const Outcome*> others;
  for (const Outcome& o : second.outcomes) others[o.id] = &o;
  Comparison result;
  Contrast all{.name = "all"};
  size_t matched = 0;
  for (const Outcome& a : first.outcomes) {
    const auto found = others.find(a.id);
    if (found == others.end()) {
      ++result.left_out;
      continue;
    }
    ++matched;
    const Outcome& b = *found->second;
    if (a.fingerprint != b.fingerprint)
      return Error{Error::Kind::kInvalid,
                   fmt::format("{} is another question in the two results; compare results of the same files", a.id)};
    if (!a.right || !b.right) {
      ++result.left_out;
      continue;
    }
    add(row_of(result.rows, a.task, 0), a, b);
    if (a.length > 0) add(row_of(result.rows, a.task, a.length), a, b);
    add(all, a, b);
    if (*a.right != *b.right) result.differing.push_back(a.id);
  }
  result.left_out += static_cast<int64_t>(others.size() - matched);
  if (all.questions() == 0) return Error{Error::Kind::kInvalid, "the two results share no question that both have a scored answer to"};
  result.rows.push_back(all);
  return result;
}

std::string text_of(const Comparison& comparison, const std::string& first, const std::string& second) {
  std::vector<std::vector<std::string>> rows = {
      {"task", "questions", "A right", "B right", "B - A", "both", "only A", "only B", "neither", "same text", "p (McNemar)"}};
  for (const Contrast& c : comparison.rows) {
    const auto n = static_cast<double>(c.questions());
    const auto number = [](int64_t x) { return fmt::format("{}", x); };
    rows.push_back({c.length > 0 ? fmt::format("  {}", c.length) : c.name, number(c.questions()),
                    percent(static_cast<double>(c.both + c.only_first) / n), percent(static_cast<double>(c.both + c.only_second) / n),
                    fmt::format("{:+.1f}", 100 * static_cast<double>(c.only_second - c.only_first) / n), number(c.both),
                    number(c.only_first), number(c.only_second), number(c.neither), percent(static_cast<double>(c.same_text) / n),
                    fmt::format("{:.3g}", mcnemar(c.only_first, c.only_second))});
  }
  std::string out = fmt::format("A: {}\nB: {}\n\n", first, second) + table_of(rows);
  if (comparison.left_out > 0) out += fmt::format("\n{} questions left out: not in both, failed, or not scored\n", comparison.left_out);
  if (!comparison.differing.empty()) out += fmt::format("\nright in one only: {}\n", fmt::join(comparison.differing, ", "));
  return out;
}

}  // namespace baton::evaluate
