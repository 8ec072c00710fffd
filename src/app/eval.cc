// baton eval: questions with known answers, asked of a checkpoint or of a server; and two results compared.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>

#include "app/chat_endpoint.h"
#include "app/commands.h"
#include "app/console.h"
#include "app/eval_answerer.h"
#include "app/progress.h"
#include "app/validators.h"
#include "base/file.h"
#include "evaluate/comparison.h"
#include "evaluate/report.h"

namespace baton::app {
namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  ModelFlags flags;
  AskOptions ask;
  std::string model;
  ServerOptions server;
  std::vector<std::string> data;
  int64_t limit = 0;
  std::string json_file;
  double at_least = 0;
  std::vector<std::string> compare;
};

constexpr int64_t kFileLimit = int64_t{1} << 30;

Result<evaluate::Report> read_report(const std::string& file) {
  BATON_ASSIGN(const std::string text, read_file(file, kFileLimit));
  return evaluate::parse_report(text, file);
}

Status compare(const Arguments& a) {
  BATON_ASSIGN(const evaluate::Report first, read_report(a.compare[0]));
  BATON_ASSIGN(const evaluate::Report second, read_report(a.compare[1]));
  BATON_ASSIGN(const evaluate::Comparison comparison, evaluate::compare(first, second));
  fmt::print("{}", evaluate::text_of(comparison, a.compare[0], a.compare[1]));
  return {};
}

boost::json::object settings_of(const Arguments& a) {
  boost::json::object s;
  if (a.model.empty()) {
    s["base_url"] = a.server.base_url;
  } else {
    s["model"] = a.model;
    s["dtype"] = a.flags.dtype;
    s["kv_cache_dtype"] = a.flags.kv_cache_dtype;
    s["index_dtype"] = a.flags.index_dtype;
    s["state_dtype"] = a.flags.state_dtype;
    s["activation_quant"] = a.flags.activation_quant;
  }
  s["temperature"] = a.ask.temperature;
  s["top_p"] = a.ask.top_p;
  s["seed"] = a.ask.seed;
  s["max_tokens"] = a.ask.max_tokens;
  s["parallel"] = a.ask.parallel;
  return s;
}

// One message for all that went wrong, once the results are out.
Status verdict(const evaluate::Report& report, double at_least) {
  if (const int64_t failed = report.failed(); failed > 0) {
    for (const evaluate::Outcome& o : report.outcomes)
      if (!o.failure.empty())
        return Error{Error::Kind::kIo, fmt::format("{} of {} questions were not answered; the first, {}: {}", failed,
                                                   report.outcomes.size(), o.id, o.failure)};
  }
  int64_t scored = 0, right = 0;
  for (const evaluate::Outcome& o : report.outcomes) {
    scored += o.right ? 1 : 0;
    right += o.right.value_or(false) ? 1 : 0;
  }
  if (at_least > 0 && static_cast<double>(right) < at_least * static_cast<double>(scored))
    return Error{Error::Kind::kInvalid,
                 fmt::format("{} of {} answers are right, less than the share of {} that --at-least asks for", right, scored, at_least)};
  return {};
}

Status evaluate_all(const Arguments& a) {
  BATON_ASSIGN(const std::vector<evaluate::Question> questions, evaluate::read_question_sets(a.data, a.limit));
  std::optional<PendingFile> json;  // now, so that a path that cannot be written is found before the work
  if (!a.json_file.empty()) {
    BATON_ASSIGN(PendingFile file, PendingFile::create(a.json_file));
    json.emplace(std::move(file));
  }
  evaluate::Report report;
  report.settings = settings_of(a);
  for (const evaluate::Question& q : questions) report.outcomes.push_back(evaluate::outcome_of(q));

  const std::unique_ptr<Answerer> answerer = a.model.empty() ? server_answerer(a.server, a.ask) : local_answerer(a.model, a.flags, a.ask);
  const Clock::time_point start = Clock::now();
  {
    Progress progress("questions", static_cast<int64_t>(questions.size()));
    BATON_TRY(answerer->answer(questions, report.outcomes, [&](int64_t done) { progress.update(done); }));
  }
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  for (size_t i = 0; i < questions.size(); ++i) {
    evaluate::Outcome& o = report.outcomes[i];
    if (o.failure.empty()) o.right = evaluate::is_right(questions[i], o.answer);
  }
  fmt::print("{}", evaluate::text_of(report));
  if (const speculate::Metrics m = answerer->speculation(); m.blocks > 0) {
    fmt::print("accepted length {:.2f}: {} of {} drafted tokens in {} blocks\n", m.accepted_length(), m.accepted, m.drafted, m.blocks);
    report.settings["speculative_algorithm"] = a.flags.speculation.algorithm;
    report.settings["accepted_length"] = m.accepted_length();
  }
  std::fflush(stdout);
  if (json) {
    BATON_TRY(json->write(evaluate::json_of(report)));
    BATON_TRY(json->commit());
  }
  return verdict(report, a.at_least);
}

}  // namespace

void add_eval(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* c = app.add_subcommand("eval", "Ask questions with known answers, of a checkpoint or of a server, and count right answers");
  CLI::Option* model = c->add_option("--model", a->model, "Checkpoint folder with its tokenizer and chat template; runs in this process");
  CLI::Option* url = c->add_option("--base-url", a->server.base_url, "Server instead, such as http://127.0.0.1:8000/v1")->excludes(model);
  CLI::Option* data = c->add_option("--data", a->data, "Question sets, JSONL (docs/eval.md); tests/data/eval has some");
  CLI::Option* compare_files =
      c->add_option("--compare", a->compare, "Compare two results that --json wrote, question by question")->expected(2);
  for (CLI::Option* o : {model, url, data}) o->excludes(compare_files);
  c->add_option("--served-model", a->server.model, "The model's name at the server (default: the first that it lists)")->needs(url);
  c->add_option("--timeout", a->server.timeout_s, "Seconds without an answer from the server")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->needs(url);
  c->add_option("--parallel", a->ask.parallel, "Questions under way at once")->capture_default_str()->check(CLI::Range(1, 1 << 10));
  c->add_option("--max-tokens", a->ask.max_tokens, "Tokens of an answer, reasoning included")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  c->add_option("--temperature", a->ask.temperature, "0: the most likely token")
      ->capture_default_str()
      ->check(between(0, 100, "a number from 0 to 100"));
  c->add_option("--top-p", a->ask.top_p, "Smallest set of likely tokens with this probability")
      ->capture_default_str()
      ->check(between(1e-6, 1, "a number above 0 and at most 1"));
  c->add_option("--seed", a->ask.seed, "Seed of sampled tokens")->capture_default_str()->check(whole_number_64());
  c->add_option("--reasoning-effort", a->ask.reasoning_effort, "Handed to the chat template, such as low or high");
  c->add_option("--limit", a->limit, "Only so many questions of each file, evenly spread over it; 0: all")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  c->add_option("--json", a->json_file, "Write results and every answer to this file");
  c->add_option("--at-least", a->at_least, "Fail if a smaller share of the answers is right")->check(between(0, 1, "a number from 0 to 1"));
  a->flags.add_to(*c);
  c->callback([a, model, url, data, compare_files, &exit_code] {
    if (compare_files->count() > 0) {
      exit_code = finish(compare(*a));
      return;
    }
    if (model->count() + url->count() == 0) throw CLI::RequiredError("--model, --base-url or --compare");
    if (data->count() == 0) throw CLI::RequiredError("--data");
    a->server.api_key = key_of_environment();
    exit_code = finish(evaluate_all(*a));
  });
}

}  // namespace baton::app
