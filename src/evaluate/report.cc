#include "evaluate/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cstdlib>
#include <map>
#include <set>

#include "evaluate/statistics.h"

namespace baton::evaluate {
namespace {

namespace json = boost::json;

struct Tally {
  int64_t questions = 0, scored = 0, right = 0, failed = 0, cut = 0;
  int64_t tokens = 0, accepted = 0;
  double seconds = 0;

  void add(const Outcome& o) {
    ++questions;
    if (!o.failure.empty()) {
      ++failed;
      return;
    }
    tokens += o.completion_tokens;
    accepted += o.accepted_tokens;
    seconds += o.seconds;
    cut += o.finish == "length" ? 1 : 0;
    if (!o.right) return;
    ++scored;
    right += *o.right ? 1 : 0;
  }
  int64_t answered() const { return questions - failed; }
  // Each cycle gives what it accepted and one token more; an answer's first token comes with its prompt.
  double tokens_per_cycle() const {
    const int64_t cycles = tokens - answered() - accepted;
    return cycles > 0 ? static_cast<double>(tokens - answered()) / static_cast<double>(cycles) : 0;
  }
};

// The columns of a report's tables.
class Table {
 public:
  Table(std::string first, bool drafts) : drafts_(drafts) {
    rows_ = {{std::move(first), "questions", "right", "accuracy", "95 % interval", "cut", "failed", "tokens each", "seconds each"}};
    if (drafts_) rows_.front().emplace_back("tokens a cycle");
  }
  void add(std::string name, const Tally& t) {
    rows_.push_back(row(std::move(name), t));
    if (drafts_) rows_.back().push_back(t.tokens_per_cycle() > 0 ? fmt::format("{:.2f}", t.tokens_per_cycle()) : "-");
  }
  std::string text() const { return table_of(rows_); }

 private:
  static std::vector<std::string> row(std::string name, const Tally& t);

  bool drafts_;
  std::vector<std::vector<std::string>> rows_;
};

std::vector<std::string> Table::row(std::string name, const Tally& t) {
  const auto mean = [&](double sum) { return t.answered() > 0 ? sum / static_cast<double>(t.answered()) : 0; };
  const Interval i = wilson(t.right, t.scored);
  const bool scored = t.scored > 0;
  return {std::move(name),
          fmt::format("{}", t.questions),
          scored ? fmt::format("{}", t.right) : "-",
          scored ? percent(static_cast<double>(t.right) / static_cast<double>(t.scored)) : "-",
          scored ? fmt::format("{} to {}", percent(i.low), percent(i.high)) : "-",
          fmt::format("{}", t.cut),
          fmt::format("{}", t.failed),
          fmt::format("{:.1f}", mean(static_cast<double>(t.tokens))),
          fmt::format("{:.2f}", mean(t.seconds))};
}

bool drafts(const Report& report) {
  return std::any_of(report.outcomes.begin(), report.outcomes.end(), [](const Outcome& o) { return o.drafted_tokens > 0; });
}

std::string task_table(const Report& report) {
  std::vector<std::string> order;  // as first met
  std::map<std::string, Tally> tasks;
  std::map<std::string, std::map<std::string, Tally>> groups;
  Tally all;
  for (const Outcome& o : report.outcomes) {
    if (!tasks.contains(o.task)) order.push_back(o.task);
    tasks[o.task].add(o);
    groups[o.task][o.group].add(o);
    all.add(o);
  }
  Table table("task", drafts(report));
  for (const std::string& task : order) {
    table.add(task, tasks[task]);
    if (groups[task].size() > 1)
      for (const auto& [group, tally] : groups[task]) table.add("  " + (group.empty() ? "(no group)" : group), tally);
  }
  if (order.size() > 1) table.add("all", all);
  return table.text();
}

std::string length_table(const Report& report) {
  std::map<std::pair<std::string, int64_t>, Tally> lengths;
  std::set<std::string> tasks;
  for (const Outcome& o : report.outcomes) {
    if (o.length == 0) continue;
    lengths[{o.task, o.length}].add(o);
    tasks.insert(o.task);
  }
  if (lengths.empty()) return {};
  Table table("prompt tokens", drafts(report));
  for (const auto& [key, tally] : lengths)
    table.add(tasks.size() > 1 ? fmt::format("{} {}", key.first, key.second) : fmt::format("{}", key.second), tally);
  return "\n" + table.text();
}

json::object json_of(const Outcome& o) {
  json::object j{{"id", o.id}, {"task", o.task}, {"fingerprint", fmt::format("{:016x}", o.fingerprint)}};
  if (!o.group.empty()) j["group"] = o.group;
  if (o.length > 0) j["length"] = o.length;
  if (!o.failure.empty()) {
    j["failure"] = o.failure;
    return j;
  }
  if (o.right) j["right"] = *o.right;
  j["content"] = o.answer.content;
  if (!o.answer.reasoning.empty()) j["reasoning"] = o.answer.reasoning;
  if (!o.answer.calls.empty()) {
    json::array& calls = j["calls"].emplace_array();
    for (const Call& c : o.answer.calls) calls.push_back(json::object{{"name", c.name}, {"arguments", c.arguments}});
  }
  j["finish"] = o.finish;
  j["prompt_tokens"] = o.prompt_tokens;
  j["cached_tokens"] = o.cached_tokens;
  j["completion_tokens"] = o.completion_tokens;
  if (o.drafted_tokens > 0) {
    j["drafted_tokens"] = o.drafted_tokens;
    j["accepted_tokens"] = o.accepted_tokens;
  }
  j["seconds"] = o.seconds;
  return j;
}

// Fields of what json_of wrote; the first that is not what it should be is remembered.
class Fields {
 public:
  explicit Fields(const json::object& object) : object_(object) {}

  std::string text(std::string_view key, bool needed = false) {
    const json::value* v = find(key, needed);
    if (v == nullptr) return {};
    if (!v->is_string()) return bad(key), std::string();
    return std::string(v->as_string());
  }
  int64_t whole(std::string_view key) {
    const json::value* v = find(key, false);
    if (v == nullptr) return 0;
    return v->is_int64() && v->as_int64() >= 0 ? v->as_int64() : (bad(key), 0);
  }
  double number(std::string_view key) {
    const json::value* v = find(key, false);
    if (v == nullptr) return 0;
    return v->is_number() ? v->to_number<double>() : (bad(key), 0);
  }
  std::optional<bool> flag(std::string_view key) {
    const json::value* v = find(key, false);
    if (v == nullptr) return std::nullopt;
    if (!v->is_bool()) return bad(key), std::nullopt;
    return v->as_bool();
  }
  std::vector<Call> calls() {
    std::vector<Call> all;
    const json::value* v = find("calls", false);
    if (v == nullptr) return all;
    if (!v->is_array()) return bad("calls"), all;
    for (const json::value& c : v->as_array()) {
      if (!c.is_object()) return bad("calls"), all;
      Fields call(c.as_object());
      all.push_back({call.text("name", true), call.text("arguments", true)});
      if (!call.problem_.empty()) return bad("calls"), all;
    }
    return all;
  }
  const std::string& problem() const { return problem_; }

 private:
  const json::value* find(std::string_view key, bool needed) {
    const json::value* v = object_.if_contains(json::string_view(key.data(), key.size()));
    if (v == nullptr && needed) bad(key);
    return v;
  }
  void bad(std::string_view key) {
    if (problem_.empty()) problem_ = fmt::format("\"{}\" is missing or of the wrong type", key);
  }
  const json::object& object_;
  std::string problem_;
};

Outcome read_outcome(Fields& fields) {
  Outcome o;
  o.id = fields.text("id", true);
  o.task = fields.text("task", true);
  o.group = fields.text("group");
  o.length = fields.whole("length");
  o.fingerprint = std::strtoull(fields.text("fingerprint", true).c_str(), nullptr, 16);
  o.failure = fields.text("failure");
  o.right = fields.flag("right");
  o.answer.content = fields.text("content");
  o.answer.reasoning = fields.text("reasoning");
  o.answer.calls = fields.calls();
  o.finish = fields.text("finish");
  o.prompt_tokens = fields.whole("prompt_tokens");
  o.cached_tokens = fields.whole("cached_tokens");
  o.completion_tokens = fields.whole("completion_tokens");
  o.drafted_tokens = fields.whole("drafted_tokens");
  o.accepted_tokens = fields.whole("accepted_tokens");
  o.seconds = fields.number("seconds");
  return o;
}

}  // namespace

Outcome outcome_of(const Question& q) {
  Outcome o;
  o.id = q.id;
  o.task = q.task;
  o.group = q.group;
  o.length = q.length;
  o.fingerprint = q.fingerprint;
  return o;
}

int64_t Report::failed() const {
  return std::count_if(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return !o.failure.empty(); });
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string table_of(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& r : rows)
    for (size_t i = 0; i < r.size(); ++i) {
      if (i == widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], r[i].size());
    }
  std::string out;
  for (const auto& r : rows) {
    std::string line;
    for (size_t i = 0; i < r.size(); ++i)
      line += i == 0 ? fmt::format("{:<{}}", r[i], widths[i]) : fmt::format("  {:>{}}", r[i], widths[i]);
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string text_of(const Report& report) {
  int64_t prompt = 0, cached = 0, generated = 0;
  for (const Outcome& o : report.outcomes) {
    prompt += o.prompt_tokens;
    cached += o.cached_tokens;
    generated += o.completion_tokens;
  }
  std::string out = task_table(report) + length_table(report);
  out += fmt::format("\n{} questions in {:.1f} s; {} prompt tokens, {} of them cached; {} tokens generated\n", report.outcomes.size(),
                     report.seconds, prompt, cached, generated);
  return out;
}

std::string json_of(const Report& report) {
  json::array questions;
  for (const Outcome& o : report.outcomes) questions.push_back(json_of(o));
  return json::serialize(json::object{{"settings", report.settings}, {"seconds", report.seconds}, {"questions", std::move(questions)}}) +
         "\n";
}

Result<Report> parse_report(std::string_view text, const std::string& where) {
  const auto wrong = [&](std::string_view what) {
    return Error{Error::Kind::kInvalid, fmt::format("{}: {}; a file that baton eval --json wrote is expected", where, what)};
  };
  boost::system::error_code failed;
  const json::value value = json::parse(json::string_view(text.data(), text.size()), failed);
  if (failed) return wrong("is not JSON (" + failed.message() + ")");
  const json::object* root = value.if_object();
  const json::value* questions = root != nullptr ? root->if_contains("questions") : nullptr;
  if (questions == nullptr || !questions->is_array()) return wrong("holds no list of \"questions\"");
  Report report;
  if (const json::value* settings = root->if_contains("settings"); settings != nullptr && settings->is_object())
    report.settings = settings->as_object();
  if (const json::value* seconds = root->if_contains("seconds"); seconds != nullptr && seconds->is_number())
    report.seconds = seconds->to_number<double>();
  for (const json::value& q : questions->as_array()) {
    if (!q.is_object()) return wrong("a question is not an object");
    Fields fields(q.as_object());
    report.outcomes.push_back(read_outcome(fields));
    if (!fields.problem().empty()) return wrong(fmt::format("question {}: {}", report.outcomes.size(), fields.problem()));
  }
  return report;
}

}  // namespace baton::evaluate
