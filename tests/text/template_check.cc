// template_check PATH...: holds the template engine against recorded renderings of the reference; prints a table, exits 1 on a difference.
// A path is a folder or one of its files: rendered.jsonl[.gz] (beside it chat_cases.jsonl[.gz] and templates/),
// expression_cases.jsonl[.gz].
// The formats stand in tests/text/README.md.
#include <fmt/format.h>

#include <boost/json.hpp>
#include <fstream>
#include <map>
#include <set>

#include "text/chat_template.h"
#include "text/checker_main.h"
#include "text/fixture_file.h"

namespace baton::text {
namespace {

namespace fs = std::filesystem;
namespace json = boost::json;

constexpr int kShownDifferences = 20;

struct Row {
  int64_t checks = 0, different = 0;
};

// What a rendering came to.
struct Outcome {
  bool ok = false;
  bool raised = false;  // by raise_exception
  std::string text;     // or the error
};

Outcome outcome_of(Result<jinja::Rendered> result) {
  constexpr std::string_view kRaised = "the chat template refuses the conversation: ";
  if (result.ok()) return {true, false, std::move(result->text)};
  const std::string& message = result.error().message;
  if (message.starts_with(kRaised)) return {false, true, message.substr(kRaised.size())};
  return {false, false, message};
}

class Check {
 public:
  Status run(const fs::path& path) {
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) return run_file(path);
    std::set<fs::path> files;
    for (const auto& entry : fs::directory_iterator(path, ignored))
      if (is_known(entry.path())) files.insert(entry.path());
    for (const fs::path& file : files) BATON_TRY(run_file(file));
    if (files.empty()) return Error{Error::Kind::kNotFound, fmt::format("{}: no fixtures of templates", path.string())};
    return {};
  }

  // The exit code.
  int report() const {
    fmt::print("{:<24}{:<24}{:>10}{:>10}\n", "template", "what", "checks", "different");
    int64_t checks = 0, different = 0;
    for (const auto& [key, row] : rows_) {
      fmt::print("{:<24}{:<24}{:>10}{:>10}\n", key.first, key.second, row.checks, row.different);
      checks += row.checks;
      different += row.different;
    }
    fmt::print("{} checks, {} different\n", checks, different);
    return different == 0 && checks > 0 ? 0 : 1;
  }

 private:
  static bool is_expressions(const fs::path& file) { return file.filename().string().starts_with("expression_cases.jsonl"); }
  static bool is_known(const fs::path& file) { return is_expressions(file) || file.filename().string().starts_with("rendered.jsonl"); }

  Status run_file(const fs::path& file) {
    if (is_expressions(file)) return check_expressions(file);
    if (is_known(file)) return check_rendered(file);
    return Error{Error::Kind::kUnsupported, fmt::format("{}: not a file of recorded renderings", file.string())};
  }

  // A template by its source; errors of reading it are the outcome of every rendering.
  struct Loaded {
    std::optional<ChatTemplate> program;
    std::string problem;
  };
  static Loaded load(std::string_view source, const std::string& where) {
    auto t = ChatTemplate::parse(source, where);
    if (!t.ok()) return {{}, t.error().message};
    t->set_variable("bos_token", ChatValue::text("<s>"));
    t->set_variable("eos_token", ChatValue::text("</s>"));
    return {std::move(*t), {}};
  }

  static ChatValue exact(const json::value& v) {
    // Through text, where numbers are exact.
    auto parsed = jinja::parse_json(json::serialize(v), true, "case");
    return parsed.ok() ? *parsed : jinja::from_json(v, true);
  }

  static ChatRequest request_of(const json::object& c) {
    ChatRequest r;
    r.messages = exact(c.at("messages"));
    if (const json::value* tools = c.if_contains("tools")) r.tools = exact(*tools);
    r.add_generation_prompt = false;
    if (const json::value* options = c.if_contains("options"))
      for (const auto& [name, value] : options->as_object()) {
        if (name == "add_generation_prompt")
          r.add_generation_prompt = value.as_bool();
        else
          r.options.emplace_back(std::string(name), exact(value));
      }
    if (const json::value* go_on = c.if_contains("continue_final_message")) r.continue_final_message = go_on->as_bool();
    r.allow_media = true;  // some templates write something for images
    // Saturday, 14 March 2026, 15:09:26.
    r.now = std::tm{};
    r.now->tm_year = 126, r.now->tm_mon = 2, r.now->tm_mday = 14, r.now->tm_hour = 15, r.now->tm_min = 9, r.now->tm_sec = 26;
    r.now->tm_wday = 6, r.now->tm_yday = 72;
    return r;
  }

  Status check_rendered(const fs::path& file) {
    const fs::path folder = file.parent_path();
    fs::path cases_path = folder / "chat_cases.jsonl";
    if (!fs::exists(cases_path)) cases_path += ".gz";
    BATON_ASSIGN(const auto cases, read_json_lines(cases_path));
    std::map<std::string, const json::object*> case_of;
    for (const json::object& c : cases) case_of[std::string(c.at("id").as_string())] = &c;
    std::map<std::string, Loaded> loaded;
    BATON_ASSIGN(const auto records, read_json_lines(file));
    for (const json::object& r : records) {
      const std::string name(r.at("template").as_string()), id(r.at("case").as_string());
      if (!loaded.contains(name)) {
        BATON_ASSIGN(const std::string source, read_fixture(folder / "templates" / name));
        loaded.emplace(name, load(source, name));
      }
      if (!case_of.contains(id)) return Error{Error::Kind::kNotFound, fmt::format("{}: no case '{}'", cases_path.string(), id)};
      ChatRequest request = request_of(*case_of[id]);
      request.parse_arguments = r.at("arguments").as_string() == "parsed";
      const Loaded& l = loaded.at(name);
      compare(name,
              request.continue_final_message ? "continued"
              : request.parse_arguments      ? "arguments parsed"
                                             : "arguments as given",
              id, r, l.program ? outcome_of(l.program->render(request)) : Outcome{false, false, l.problem});
    }
    return {};
  }

  Status check_expressions(const fs::path& file) {
    BATON_ASSIGN(const auto cases, read_json_lines(file));
    for (const json::object& c : cases) {
      const Loaded l = load(c.at("template").as_string(), "template");
      ChatRequest request = request_of(c);
      request.parse_arguments = false;
      compare("-", "expressions", std::string(c.at("id").as_string()), c,
              l.program ? outcome_of(l.program->render(request)) : Outcome{false, false, l.problem});
    }
    return {};
  }

  static bool agrees(const json::value& wanted, const Outcome& got) {
    if (wanted.is_string()) return got.ok && got.text == wanted.as_string();
    const json::object& w = wanted.as_object();
    if (const json::value* text = w.if_contains("text")) return got.ok && got.text == text->as_string();
    const json::value* error = w.if_contains("error");
    if (error == nullptr || got.ok) return false;
    // Only the words of raise_exception need to agree.
    if (!error->is_object() || error->at("type").as_string() != "TemplateError") return true;
    return got.raised && got.text == error->at("message").as_string();
  }

  void compare(const std::string& name, const std::string& what, const std::string& id, const json::object& wanted, const Outcome& got) {
    Row& row = rows_[{name, what}];
    ++row.checks;
    bool equal = agrees(wanted, got);
    if (const json::value* others = wanted.if_contains("accept"); others != nullptr && !equal)
      for (const json::value& other : others->as_array()) equal |= agrees(other, got);
    if (equal) return;
    ++row.different;
    if (shown_++ >= kShownDifferences) return;
    const json::value* text = wanted.if_contains("text");
    const std::string expected = text != nullptr ? std::string(text->as_string()) : json::serialize(wanted.at("error"));
    size_t same = 0;
    while (same < expected.size() && same < got.text.size() && expected[same] == got.text[same]) ++same;
    const size_t from = same < 40 ? 0 : same - 40;
    fmt::print("{} {}, {}: differs from byte {} on\n  is       {}{}\n  expected {}\n", name, id, what, same, got.ok ? "" : "error ",
               json::serialize(json::string(got.text.substr(got.ok ? from : 0, 160))),
               json::serialize(json::string(expected.substr(got.ok ? from : 0, 160))));
  }

  std::map<std::pair<std::string, std::string>, Row> rows_;
  int shown_ = 0;
};

}  // namespace
}  // namespace baton::text

int main(int argc, char** argv) { return baton::text::checker_main<baton::text::Check>("template_check", argc, argv); }
