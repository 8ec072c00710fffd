// baton bench serve: loads a server that speaks OpenAI's API and measures what its users would see.
#include "app/bench_serve.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <cmath>
#include <csignal>
#include <ctime>
#include <limits>
#include <memory>
#include <thread>

#include "app/commands.h"
#include "app/console.h"
#include "app/progress.h"
#include "app/validators.h"
#include "base/file.h"
#include "load/comparison.h"
#include "load/page.h"
#include "load/presets.h"
#include "load/report.h"

namespace baton::app {
namespace {

namespace json = boost::json;
using Arguments = BenchServeArguments;

constexpr int64_t kResultLimit = int64_t{1} << 30;

volatile std::sig_atomic_t interrupted = 0;
void on_interrupt(int) { interrupted = 1; }

struct Level {
  double rate = std::numeric_limits<double>::infinity();
  int64_t concurrency = 0;
};

std::string label_of(const Arguments& a, const Level& level, bool several, int64_t repeat) {
  std::string out;
  if (several && a.rates.size() > 1) out = fmt::format("{} requests/s", level.rate);
  if (several && a.concurrencies.size() > 1) out += fmt::format("{}{} at once", out.empty() ? "" : ", ", level.concurrency);
  if (a.repeats > 1) out += fmt::format("{}run {}", out.empty() ? "" : ", ", repeat + 1);
  return out;
}

Result<std::vector<Level>> levels_of(const Arguments& a) {
  std::vector<Level> out;
  for (const std::string& rate : a.rates)
    for (const int64_t concurrency : a.concurrencies) {
      Level l{.concurrency = concurrency};
      char* end = nullptr;
      l.rate = std::strtod(rate.c_str(), &end);
      if (rate.empty() || *end != '\0' || !(l.rate > 0))
        return Error{Error::Kind::kInvalid, fmt::format("--request-rate {}: say requests per second, or inf", rate)};
      out.push_back(l);
    }
  return out;
}

std::vector<double> arrivals_of(const Arguments& a, const Level& level, const load::Workload& workload, uint64_t seed) {
  if (a.trace_times) {
    std::vector<double> out;
    for (const load::Conversation& c : workload) out.push_back(*c.arrival_s);
    return out;
  }
  if (a.ramp.empty() && std::isinf(level.rate)) return {};
  return load::arrivals(static_cast<int64_t>(workload.size()), {.rate = level.rate,
                                                                .burstiness = a.burstiness,
                                                                .ramp = a.ramp == "linear" ? load::Ramp::kLinear
                                                                        : a.ramp.empty()   ? load::Ramp::kNone
                                                                                           : load::Ramp::kExponential,
                                                                .start_rate = a.ramp_start,
                                                                .end_rate = a.ramp_end,
                                                                .seed = seed});
}

Result<ChatEndpoint> endpoint_of(const Arguments& a) {
  const std::string host = a.host.find(':') != std::string::npos ? "[" + a.host + "]" : a.host;
  return ChatEndpoint::at(a.base_url.empty() ? fmt::format("http://{}:{}", host, a.port) : a.base_url, key_of_environment());
}

Result<load::RunOptions> run_options(const Arguments& a, const ChatEndpoint& endpoint) {
  load::RunOptions o;
  o.url = endpoint.url;
  o.tls = {.ca_file = a.ca_file, .verify = !a.insecure};
  o.concurrency_ramp_s = a.concurrency_ramp_s;
  o.time_limit_s = a.time_limit_s;
  o.silence_s = a.silence_s;
  load::RequestOptions& r = o.request;
  r.api = a.chat() ? load::Api::kChat : load::Api::kCompletions;
  const std::string shown = endpoint.shown();
  r.host = shown.substr(shown.find("://") + 3, shown.size() - endpoint.url.path.size() - shown.find("://") - 3);
  r.target = !a.endpoint.empty() ? a.endpoint : endpoint.url.path + (a.chat() ? "/chat/completions" : "/completions");
  if (r.target.front() != '/' || r.target.find_first_of(" \r\n") != std::string::npos)
    return Error{Error::Kind::kInvalid, fmt::format("--endpoint {}: say a path, such as /v1/completions", a.endpoint)};
  if (!endpoint.api_key.empty()) r.headers.emplace_back("Authorization", "Bearer " + endpoint.api_key);
  for (const std::string& h : a.headers) {
    const size_t equals = h.find('=');
    if (equals == std::string::npos || equals == 0 || h.find_first_of("\r\n") != std::string::npos)
      return Error{Error::Kind::kInvalid, fmt::format("--header {}: say NAME=VALUE", h)};
    r.headers.emplace_back(h.substr(0, equals), h.substr(equals + 1));
  }
  r.vocabulary = a.vocabulary;
  r.ids = !a.as_text;
  r.ignore_eos = !a.keep_eos;
  r.temperature = a.temperature;
  if (!a.extra_body.empty()) {
    boost::system::error_code failed;
    const json::value extra = json::parse(a.extra_body, failed);
    if (failed || !extra.is_object())
      return Error{Error::Kind::kInvalid, fmt::format("--extra-request-body is not a JSON object: {}", a.extra_body)};
    r.extra = extra.get_object();
  }
  return o;
}

// Waits until the server lists its models; its first one is asked where none was named.
Status find_model(const Arguments& a, const ChatEndpoint& endpoint, std::string& model) {
  const auto begin = std::chrono::steady_clock::now();
  for (;;) {
    const Result<std::string> first = endpoint.first_model();
    if (first.ok() && model.empty()) model = *first;
    if (first.ok() && model.empty())
      return Error{Error::Kind::kInvalid, fmt::format("{}/models names no model; say which with --model", endpoint.shown())};
    // A server that answers otherwise is there; what it thinks of the key shows with the first request.
    if (first.ok() || (first.error().kind != Error::Kind::kIo && !model.empty())) return {};
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
    if (first.error().kind != Error::Kind::kIo || waited.count() >= a.ready_s || interrupted != 0) return first.error();
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

Status warm_up(const Arguments& a, load::RunOptions options, const load::Workload& like) {
  if (a.warmups == 0) return {};
  load::Workload some;
  const auto longest = std::max<int64_t>(1, like.front().turns.front().prompt.tokens());
  const uint64_t key = load::key_of(a.seed, 7);
  for (int64_t i = 0; i < a.warmups; ++i) {
    load::Turn t{.prompt = {.stretches = {{.key = load::key_of(key, static_cast<uint64_t>(i)), .tokens = longest}}},
                 .output_tokens = like.front().turns.front().output_tokens};
    if (!like.front().turns.front().prompt.text.empty()) t.prompt = like.front().turns.front().prompt;
    some.push_back({.turns = {std::move(t)}});
  }
  options.concurrency = std::max<int64_t>(options.concurrency, 1);
  BATON_ASSIGN(const load::Run warm, load::run(some, {}, options));
  for (const load::Record& r : warm.records)
    if (!r.good())
      return Error{Error::Kind::kInvalid,
                   fmt::format("the first request, which only warms up, failed ({}: {}); nothing was measured", r.failure, r.message)};
  return {};
}

json::object settings_of(const Arguments& a, const Level& level, uint64_t seed, const std::string& model) {
  json::object s{{"date", fmt::format("{:%Y%m%d-%H%M%S}", fmt::gmtime(std::time(nullptr)))},
                 {"endpoint_type", a.backend},
                 {"backend", a.backend},
                 {"model_id", model},
                 {"load", load_json(a, seed)},
                 {"burstiness", std::isinf(a.burstiness) ? json::value("inf") : json::value(a.burstiness)}};
  if (a.trace_times)
    s["request_rate"] = "trace";
  else
    s["request_rate"] = std::isinf(level.rate) ? json::value("inf") : json::value(level.rate);
  s["max_concurrency"] = level.concurrency > 0 ? json::value(level.concurrency) : json::value(nullptr);
  if (!a.ramp.empty()) {
    s["ramp_up_strategy"] = a.ramp;
    s["ramp_up_start_rps"] = a.ramp_start;
    s["ramp_up_end_rps"] = a.ramp_end;
  }
  return s;
}

Result<load::Measurement> measure(const Arguments& a, const ChatEndpoint& endpoint, load::RunOptions options, const Level& level,
                                  const load::Objective& objective, uint64_t seed) {
  BATON_ASSIGN(const load::Workload workload, workload_of(a, seed));
  options.concurrency = level.concurrency;
  const int64_t turns = load::turns_of(workload);
  if (a.flush_cache) BATON_TRY(flush_cache(endpoint));
  Progress progress("requests", turns);
  options.on_progress = [&progress](int64_t ended) {
    progress.update(ended);
    return interrupted == 0;
  };
  const auto before = speculation_of(endpoint);
  load::Measurement m;
  m.level = std::isinf(level.rate) ? static_cast<double>(level.concurrency) : level.rate;
  m.settings = settings_of(a, level, seed, options.request.model);
  m.settings["num_prompts"] = turns;
  m.settings["shared_prefix_share"] = load::shared_share(workload);
  m.objective = objective;
  BATON_ASSIGN(m.run, load::run(workload, arrivals_of(a, level, workload, seed), options));
  m.summary = load::summary_of(m.run, objective);
  if (const auto after = speculation_of(endpoint); before && after) {
    const double blocks = after->blocks - before->blocks, accepted = after->accepted - before->accepted;
    if (blocks > 0 && after->accepted > 0) m.accepted_length = 1 + accepted / blocks;
  } else {
    m.accepted_length = accepted_since_start(endpoint);
    m.accepted_since_start = true;
  }
  return m;
}

Status compare_files(const Arguments& a) {
  BATON_ASSIGN(const std::string one, read_file(a.compare[0], kResultLimit));
  BATON_ASSIGN(const auto first, load::parse_figures(one, a.compare[0]));
  BATON_ASSIGN(const std::string two, read_file(a.compare[1], kResultLimit));
  BATON_ASSIGN(const auto second, load::parse_figures(two, a.compare[1]));
  if (first.size() != second.size())
    return Error{Error::Kind::kInvalid, fmt::format("{} holds {} runs and {} {}; compare files with as many", a.compare[0], first.size(),
                                                    a.compare[1], second.size())};
  for (size_t i = 0; i < first.size(); ++i) fmt::print("{}", load::text_of(load::compare(first[i], second[i]), a.compare[0], a.compare[1]));
  return {};
}

Status bench(const Arguments& a) {
  BATON_ASSIGN(const std::vector<Level> levels, levels_of(a));
  BATON_ASSIGN(const load::Objective objective, objective_of(a));
  BATON_ASSIGN(const load::Workload first, workload_of(a, a.seed));  // also finds out what is wrong before anything is sent
  if (a.trace_times && !first.front().arrival_s)
    return Error{Error::Kind::kInvalid, "--use-trace-timestamps needs a trace that has them: --dataset-name mooncake"};
  std::optional<PendingFile> json_file, html_file;
  for (const auto& [name, file] : {std::pair(&a.json_file, &json_file), std::pair(&a.html_file, &html_file)}) {
    if (name->empty()) continue;
    BATON_ASSIGN(PendingFile pending, PendingFile::create(*name));
    file->emplace(std::move(pending));
  }
  BATON_ASSIGN(const ChatEndpoint endpoint, endpoint_of(a));
  BATON_ASSIGN(load::RunOptions options, run_options(a, endpoint));
  options.request.model = a.model;
  std::signal(SIGINT, on_interrupt);
  BATON_TRY(find_model(a, endpoint, options.request.model));
  BATON_TRY(warm_up(a, options, first));
  fmt::print("{} {}, model {}, seed {}: {} requests, {:.2f} % of their prompts shared with one before\n", endpoint.shown(),
             a.chat() ? "chats" : "completions", options.request.model, a.seed, load::turns_of(first), 100 * load::shared_share(first));
  std::fflush(stdout);
  std::vector<load::Measurement> all;
  int64_t failed = 0;
  for (const Level& level : levels) {
    std::vector<load::Measurement> same;
    for (int64_t repeat = 0; repeat < a.repeats && interrupted == 0; ++repeat) {
      // Every run asks something else, or the server's cache would answer for the one before.
      BATON_ASSIGN(load::Measurement m, measure(a, endpoint, options, level, objective, a.seed + all.size() + same.size()));
      m.label = label_of(a, level, levels.size() > 1, repeat);
      if (!m.label.empty()) m.settings["label"] = m.label;
      fmt::print("{}", load::text_of(m));
      std::fflush(stdout);
      failed += m.summary.failed;
      same.push_back(std::move(m));
    }
    fmt::print("{}", load::spread_text(same));
    std::move(same.begin(), same.end(), std::back_inserter(all));
  }
  if (json_file && !all.empty()) {
    BATON_TRY(json_file->write(load::json_text(all, a.detailed)));
    BATON_TRY(json_file->commit());
  }
  if (html_file && !all.empty()) {
    BATON_TRY(html_file->write(load::page_of(all, fmt::format("{} at {}", options.request.model, endpoint.shown()))));
    BATON_TRY(html_file->commit());
  }
  if (interrupted != 0) return Error{Error::Kind::kExhausted, "stopped; the figures are those of what had ended by then"};
  if (failed > 0) return Error{Error::Kind::kExhausted, fmt::format("{} requests failed; their kinds stand with the figures", failed)};
  return {};
}

// CLI11 reads the first name without dashes as the option's; the others are what other load generators call it.
void add_server_options(CLI::App& c, Arguments& a) {
  c.add_option("--base-url", a.base_url, "The server, such as https://host/v1; its key is read from BATON_API_KEY or OPENAI_API_KEY");
  c.add_option("--host", a.host, "Without --base-url: where it is")->capture_default_str();
  c.add_option("--port", a.port, "... and its port")->check(CLI::Range(1, 65535))->capture_default_str();
  c.add_option("--backend,--endpoint-type", a.backend, "Text completions, or (with chat in it) chats")
      ->check(CLI::IsMember({"openai", "openai-chat", "vllm", "vllm-chat", "sglang-oai", "sglang-oai-chat"}))
      ->capture_default_str();
  c.add_option("--endpoint", a.endpoint, "Path to POST to; by default /completions or /chat/completions behind the base");
  c.add_option("--model,--served-model-name", a.model, "Model to ask for; by default the first that the server lists");
  c.add_option("--header", a.headers, "A header field NAME=VALUE of every request; may come again");
  c.add_option("--ca-file", a.ca_file, "Certificates of those who may sign the server's");
  c.add_flag("--insecure", a.insecure, "Believe any certificate");
  c.add_option("--ready-check-timeout-sec", a.ready_s, "Wait so long for a server that cannot be reached yet")
      ->check(between(0, 1e6, "a number of seconds"))
      ->capture_default_str();
  c.add_option("--silence-timeout-sec", a.silence_s, "An answer without a byte for so long has failed")
      ->check(between(1, 1e6, "a number of seconds from 1"))
      ->capture_default_str();
  c.add_flag("--flush-cache", a.flush_cache, "POST /flush_cache before every run");
}

void add_sending_options(CLI::App& c, Arguments& a) {
  c.add_option("--request-rate", a.rates, "Requests per second; inf: at once, or as --max-concurrency lets; several are measured in turn")
      ->delimiter(',')
      ->capture_default_str();
  c.add_option("--burstiness", a.burstiness, "Shape of the gamma distribution of gaps: 1 Poisson, below it bursts, inf evenly")
      ->check(between(1e-3, std::numeric_limits<double>::infinity(), "a number above 0"))
      ->capture_default_str();
  c.add_option("--max-concurrency", a.concurrencies, "Conversations at once; 0: no limit; several are measured in turn")
      ->delimiter(',')
      ->check(CLI::Range(0, 100'000));
  c.add_option("--concurrency-ramp-sec", a.concurrency_ramp_s, "Reach --max-concurrency over so many seconds")
      ->check(between(0, 1e6, "a number of seconds"));
  CLI::Option* ramp = c.add_option("--ramp-up-strategy", a.ramp, "The rate rises from the first to the last request")
                          ->check(CLI::IsMember({"linear", "exponential"}));
  CLI::Option* start =
      c.add_option("--ramp-up-start-rps", a.ramp_start, "... from this rate")->check(between(1e-3, 1e6, "a rate"))->needs(ramp);
  CLI::Option* end = c.add_option("--ramp-up-end-rps", a.ramp_end, "... to this")->check(between(1e-3, 1e6, "a rate"))->needs(ramp);
  ramp->needs(start)->needs(end);
  c.add_option("--max-seconds", a.time_limit_s, "Send nothing after so many seconds")->check(between(1e-3, 1e7, "a number of seconds"));
  c.add_option("--repeats", a.repeats, "Runs of each load, with the next seed each, and how far they differ")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  c.add_option("--num-warmups,--warmup-requests", a.warmups, "Requests before anything is measured")
      ->check(CLI::Range(0, 10'000))
      ->capture_default_str();
  c.add_flag("--disable-ignore-eos", a.keep_eos,
             "Let the model end its answers; otherwise ignore_eos is sent, and they are as long as asked");
  c.add_flag("--ignore-eos", a.as_usual, "What is done anyway");
  c.add_flag("--disable-tqdm", a.as_usual, "Nothing: progress is drawn on a terminal only");
  c.add_option("--temperature", a.temperature, "Of sampling")->check(between(0, 100, "a number from 0"))->capture_default_str();
  c.add_option("--extra-request-body,--extra-body", a.extra_body, "A JSON object whose members every body gets");
}

}  // namespace

void add_bench_serve(CLI::App& group, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* c = group.add_subcommand("serve", "Load a server that speaks OpenAI's API, and measure throughput and latencies");
  add_server_options(*c, *a);
  add_load_options(*c, *a);
  c->add_option("--seed", a->seed, "Of lengths, tokens and arrivals: the same seed asks the same")
      ->check(whole_number_64())
      ->capture_default_str();
  add_sending_options(*c, *a);
  c->add_option("--goodput", a->goodput, "Limits that a good answer keeps, in ms: ttft:6000 tpot:25 e2el:30000");
  c->add_option("--slo", a->objective, "article: mean TTFT below 6 s, mean TPOT below 25 ms")->check(CLI::IsMember({"article"}));
  c->add_option("--json,--result-filename,--output-file", a->json_file, "Write the figures to this file, named as vLLM names them");
  c->add_option("--html", a->html_file, "Write a page with tables and plots to this file");
  c->add_flag("--save-detailed,--output-details", a->detailed, "Also every gap between pieces into the JSON file");
  c->add_option("--compare", a->compare, "Instead: compare two JSON files of this command")->expected(2);
  CLI::Option* concurrency = c->get_option("--max-concurrency");
  CLI::Option* rate = c->get_option("--request-rate");
  c->callback([a, c, concurrency, rate, &exit_code] {
    if (!a->compare.empty()) {
      exit_code = finish(compare_files(*a));
      return;
    }
    if (!a->workload.empty() && c->count("--dataset-name") > 0) throw CLI::ExcludesError("--workload", "--dataset-name");
    if (a->trace_times && rate->count() > 0) throw CLI::ExcludesError("--use-trace-timestamps", "--request-rate");
    if (!a->ramp.empty() && rate->count() > 0) throw CLI::ExcludesError("--ramp-up-strategy", "--request-rate");
    if (const load::Preset* p = load::find_preset(a->workload); p != nullptr && concurrency->count() == 0)
      a->concurrencies = {rate->count() == 0 ? p->concurrency : 0};
    exit_code = finish(bench(*a));
  });
}

}  // namespace baton::app
