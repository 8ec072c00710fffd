// parser_check PATH...: holds the output parser against transcripts and what they mean; prints a table, exits 1 on a difference.
// A path is a folder or a parser_cases.jsonl[.gz] of it; parser_tools.json and the tokenizer glm-like.json lie beside. Every transcript is
// parsed whole, by character, by byte, cut at random, and as token ids where it has them. The formats stand in tests/text/README.md.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <cmath>
#include <map>
#include <set>

#include "text/checker_main.h"
#include "text/fixture_file.h"
#include "text/parse/cuttings.h"
#include "text/tokenizer.h"

namespace baton::text {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr int kShownDifferences = 20;
constexpr int kRandomCuttings = 20;
constexpr uint64_t kSeed = 20;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\n\r\f\v";
  const size_t first = text.find_first_not_of(kSpace);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpace) - first + 1);
}

// Objects in any order, numbers by value; whole numbers exactly.
bool same_value(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_double() || b.is_double()) return a.to_number<double>() == b.to_number<double>();
    if (a.is_uint64() != b.is_uint64()) return false;  // a uint64 is only used beyond int64
    return a == b;
  }
  if (a.kind() != b.kind()) return false;
  if (a.is_array()) return std::equal(a.get_array().begin(), a.get_array().end(), b.get_array().begin(), b.get_array().end(), same_value);
  if (!a.is_object()) return a == b;
  const json::object &x = a.get_object(), &y = b.get_object();
  return x.size() == y.size() && std::all_of(x.begin(), x.end(), [&](const auto& member) {
           const json::value* other = y.if_contains(member.key());
           return other != nullptr && same_value(member.value(), *other);
         });
}

// What a client collects from the events.
struct Parse {
  std::string reasoning, content, finish;
  json::array calls;
  std::string wrong;  // not empty: the events break their own rules

  static Parse of(const std::vector<OutputEvent>& events) {
    using Kind = OutputEvent::Kind;
    Parse p;
    std::string arguments;
    bool open = false;
    for (const OutputEvent& e : events) {
      const auto index = static_cast<int32_t>(p.calls.size());
      switch (e.kind) {
        case Kind::kReasoning: p.reasoning += e.text; break;
        case Kind::kContent: p.content += e.text; break;
        case Kind::kToolStart:
          if (open || e.tool_index != index) p.wrong = "a call begins out of order";
          open = true;
          arguments.clear();
          p.calls.push_back(json::object{{"name", e.text}});
          break;
        case Kind::kToolArguments:
          if (!open || e.tool_index != index - 1) p.wrong = "arguments outside of their call";
          arguments += e.text;
          break;
        case Kind::kToolEnd: {
          json::error_code error;
          json::value value = json::parse(arguments, error);
          if (!open || error || !value.is_object()) p.wrong = fmt::format("arguments are no JSON object: {}", arguments);
          if (!p.calls.empty()) p.calls.back().as_object()["arguments"] = std::move(value);
          open = false;
          break;
        }
        case Kind::kFinish: p.finish = name_of(e.finish); break;
      }
    }
    if (open) p.wrong = "a call does not end";
    if (events.empty() || events.back().kind != Kind::kFinish) p.wrong = "there is no end";
    return p;
  }

  bool equals(const json::object& wanted) const {
    const auto text = [&](const char* key) {
      const json::value& v = wanted.at(key);
      return v.is_null() ? std::string_view() : trimmed(v.as_string());
    };
    return wrong.empty() && trimmed(reasoning) == text("reasoning") && trimmed(content) == text("content") &&
           finish == std::string_view(wanted.at("finish_reason").as_string()) && same_value(calls, wanted.at("tool_calls"));
  }

  std::string shown() const {
    if (!wrong.empty()) return wrong;
    return json::serialize(json::object{{"reasoning", reasoning}, {"content", content}, {"tool_calls", calls}, {"finish_reason", finish}});
  }
};

struct Row {
  int64_t checks = 0, accepted = 0, different = 0;
};

class Check {
 public:
  Status run(const fs::path& path) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) return run_file(path);
    std::set<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path, ignored))
      if (entry.path().filename().string().starts_with("parser_cases.jsonl")) files.insert(entry.path());
    if (files.empty()) return Error{Error::Kind::kNotFound, fmt::format("{}: no parser_cases.jsonl", path.string())};
    for (const fs::path& file : files) BATON_TRY(run_file(file));
    return {};
  }

  // The exit code.
  int report() const {
    fmt::print("{:<16}{:<14}{:>10}{:>12}{:>12}\n", "tag", "cut", "checks", "alternative", "different");
    int64_t checks = 0, different = 0;
    for (const auto& [key, row] : rows_) {
      fmt::print("{:<16}{:<14}{:>10}{:>12}{:>12}\n", key.first, key.second, row.checks, row.accepted, row.different);
      checks += row.checks;
      different += row.different;
    }
    fmt::print("{} checks, {} different (cuttings at random: seed {})\n", checks, different, kSeed);
    return different == 0 && checks > 0 ? 0 : 1;
  }

 private:
  Status run_file(const fs::path& file) {
    BATON_ASSIGN(const auto cases, read_json_lines(file));
    BATON_ASSIGN(const std::string tools_text, read_fixture(file.parent_path() / "parser_tools.json"));
    tool_schemas_ = json::parse(tools_text);
    tokenizer_.reset();
    if (const fs::path tokenizer = file.parent_path() / "glm-like.json"; fs::exists(tokenizer)) {
      BATON_ASSIGN(Tokenizer loaded, Tokenizer::load(tokenizer));
      tokenizer_ = std::make_unique<Tokenizer>(std::move(loaded));
    }
    for (const json::object& c : cases) BATON_TRY(check_case(c));
    return {};
  }

  Status check_case(const json::object& c) {
    ToolTypes tools;
    const json::value* choice = c.if_contains("tool_choice");
    const bool forbidden = choice != nullptr && choice->is_string() && choice->as_string() == "none";
    if (const json::value& names = c.at("tools"); names.is_array() && !forbidden)
      for (const json::value& name : names.get_array()) tools.add(name.as_string(), tool_schemas_.at(name.as_string()));

    const std::string_view engine_name = c.at("engine_finish").as_string();
    const FinishReason engine = engine_name == "stop"     ? FinishReason::kStop
                                : engine_name == "length" ? FinishReason::kLength
                                                          : FinishReason::kAbort;
    OutputParser::Options options{.starts_in_reasoning = c.at("starts_in_think").as_bool(), .tools = &tools};
    const std::string_view text = c.at("text").as_string();
    const OutputMarkup in_text;
    const auto whole = parse_pieces(in_text, options, {text}, engine);
    compare(c, "whole", whole, nullptr);
    compare(c, "by character", parse_pieces(in_text, options, by_character(text), engine), &whole);
    compare(c, "by byte", parse_pieces(in_text, options, by_byte(text), engine), &whole);
    std::mt19937_64 random(kSeed);
    for (int i = 0; i < kRandomCuttings; ++i)
      compare(c, "at random", parse_pieces(in_text, options, at_random(text, random, 1U << i % 7), engine), &whole);

    const json::value* ids = c.if_contains("ids");
    if (ids == nullptr || ids->is_null()) return {};
    if (tokenizer_ == nullptr) return Error{Error::Kind::kNotFound, "cases have ids, but there is no glm-like.json beside them"};
    options.tokenizer = tokenizer_.get();
    const auto list = json::value_to<std::vector<int32_t>>(*ids);
    // Where text reads like a marker without being one, only ids tell.
    compare(c, "by token", parse_ids(OutputMarkup(*tokenizer_), options, list, engine), c.contains("ordinary_spans") ? nullptr : &whole);
    return {};
  }

  // `same` are the events that have to come out, whatever they mean.
  void compare(const json::object& c, const std::string& cut, const std::vector<OutputEvent>& events,
               const std::vector<OutputEvent>* same) {
    Row& row = rows_[{std::string(c.at("tags").as_array().at(0).as_string()), cut}];
    ++row.checks;
    const Parse parse = Parse::of(events);
    const bool exact = parse.equals(c.at("expect").as_object());
    bool accepted = false;
    if (const json::value* others = c.if_contains("accept"))
      for (const json::value& other : others->as_array()) accepted = accepted || parse.equals(other.as_object());
    // With ids at hand, reading ordinary text as a marker is not good enough.
    if (cut == "by token" && c.contains("ordinary_spans")) accepted = false;
    const bool stable = same == nullptr || events == *same;
    if (stable && exact) return;
    if (stable && accepted) {
      ++row.accepted;
      return;
    }
    ++row.different;
    if (shown_++ < kShownDifferences)
      fmt::print("{} {}: {}{}\n  expected {}\n", std::string_view(c.at("id").as_string()), cut, stable ? "" : "other events than whole; ",
                 parse.shown(), json::serialize(c.at("expect")));
  }

  json::value tool_schemas_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::map<std::pair<std::string, std::string>, Row> rows_;
  int shown_ = 0;
};

}  // namespace
}  // namespace baton::text

int main(int argc, char** argv) { return baton::text::checker_main<baton::text::Check>("parser_check", argc, argv); }
