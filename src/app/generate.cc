// baton generate: token ids in, token ids out, one prompt or many at once, from one checkpoint on one device.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <memory>

#include "app/commands.h"
#include "app/console.h"
#include "app/id_list.h"
#include "app/model_flags.h"
#include "app/progress.h"
#include "app/validators.h"
#include "base/file.h"
#include "engine/gathering_sink.h"
#include "engine/split_engine.h"

namespace baton::app {
namespace {

using engine::GatheringSink;

struct Arguments {
  ModelFlags flags;
  std::string model;
  std::string prompt_ids;
  std::string prompt_file;
  std::string prompts_file;
  int64_t max_tokens = 16;
  int64_t context = 0;  // 0: max_position_embeddings
  int32_t running = 16;
  int32_t choices = 1;
  sched::Sampling sampling;
  bool ignore_eos = false;
  bool apart = false;  // prefill and decode
  std::string format = "text";
};

using Clock = std::chrono::steady_clock;
double seconds_between(Clock::time_point start, Clock::time_point end) { return std::chrono::duration<double>(end - start).count(); }

Error invalid(std::string message) { return {Error::Kind::kInvalid, std::move(message)}; }

constexpr int64_t kFileLimit = int64_t{1} << 30;

Result<std::vector<std::vector<int32_t>>> read_prompts(const Arguments& a) {
  std::vector<std::vector<int32_t>> prompts;
  if (a.prompts_file.empty()) {
    if (a.prompt_file.empty()) {
      BATON_ASSIGN(prompts.emplace_back(), parse_id_list(a.prompt_ids, "--prompt-ids"));
    } else {
      BATON_ASSIGN(const std::string text, read_file(a.prompt_file, kFileLimit));
      BATON_ASSIGN(prompts.emplace_back(), parse_id_list(text, a.prompt_file));
    }
    return prompts;
  }
  BATON_ASSIGN(const std::string text, read_file(a.prompts_file, kFileLimit));
  size_t line = 1;
  for (size_t begin = 0; begin < text.size(); ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view row = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    BATON_ASSIGN(prompts.emplace_back(), parse_id_list(row, fmt::format("{}:{}", a.prompts_file, line)));
  }
  if (prompts.empty()) return invalid(fmt::format("{} holds no prompt; give one list of ids a line", a.prompts_file));
  return prompts;
}

Status check_prompt(const std::vector<int32_t>& prompt, const std::string& name, const model::Config& config, const Arguments& a) {
  if (prompt.empty()) return invalid(fmt::format("{} is empty; give at least one token id", name));
  for (size_t i = 0; i < prompt.size(); ++i)
    if (prompt[i] < 0 || prompt[i] >= config.vocab_size)
      return invalid(fmt::format("token {} (entry {} of {}) is outside the vocabulary; ids go from 0 to {}", prompt[i], i + 1, name,
                                 config.vocab_size - 1));
  const int64_t limit = a.context > 0 ? a.context : config.max_position_embeddings;
  const auto n = static_cast<int64_t>(prompt.size());
  if (a.context > config.max_position_embeddings)
    return invalid(
        fmt::format("--context {} exceeds the model's {} positions (max_position_embeddings)", a.context, config.max_position_embeddings));
  if (n + a.max_tokens > limit)
    return invalid(fmt::format("{} has {} tokens, which with {} to generate exceed the context of {}; shorten it or lower --max-tokens",
                               name, n, a.max_tokens, limit));
  return {};
}

std::string prompt_name(const Arguments& a, size_t index) {
  return a.prompts_file.empty() ? "the prompt" : fmt::format("prompt {}", index + 1);
}

// What was measured of one request.
struct Timings {
  double prefill = 0;  // from submission to the first token
  double decode = 0;   // from there to the end
  int64_t decode_steps = 0;
};

Timings timings_of(const GatheringSink& sink, Clock::time_point submitted) {
  Timings t;
  const GatheringSink::Choice& first = sink.choices().front();
  t.prefill = seconds_between(submitted, first.first);
  for (const GatheringSink::Choice& c : sink.choices()) {
    t.decode = std::max(t.decode, seconds_between(first.first, c.last));
    t.decode_steps += c.usage.generated_tokens - 1;
  }
  return t;
}

double rate(int64_t tokens, double seconds) { return seconds > 0 ? static_cast<double>(tokens) / seconds : 0; }
std::string rate_text(int64_t tokens, double seconds) { return seconds > 0 ? fmt::format("{:.1f} tok/s", rate(tokens, seconds)) : "-"; }

boost::json::object answer_json(const GatheringSink& sink) {
  boost::json::object root;
  const auto put = [](boost::json::object& to, const GatheringSink::Choice& c) {
    to["ids"] = boost::json::value_from(c.tokens);
    to["finish_reason"] = sched::finish_reason_name(c.reason);
  };
  if (sink.choices().size() == 1) {
    put(root, sink.choices().front());
  } else {
    boost::json::array& all = root["choices"].emplace_array();
    for (const GatheringSink::Choice& c : sink.choices()) put(all.emplace_back(boost::json::object()).as_object(), c);
  }
  int64_t generated = 0;
  for (const GatheringSink::Choice& c : sink.choices()) generated += c.usage.generated_tokens;
  root["prompt_tokens"] = sink.choices().front().usage.prompt_tokens;
  root["cached_tokens"] = sink.choices().front().usage.cached_tokens;
  root["completion_tokens"] = generated;
  return root;
}

struct Run {
  engine::LocalEngine& local;    // that requests went to
  engine::LocalEngine& prefill;  // that computed the prompts; the same, or another
  const std::vector<std::unique_ptr<GatheringSink>>& sinks;
  double load = 0;
  Clock::time_point submitted;
};

int64_t cache_bytes(const cache::Budget& budget) {
  int64_t sum = 0;
  for (const cache::BudgetLine& l : budget.device)
    if (l.name == "pages" || l.name == "slots" || l.name == "replay rings" || l.name == "snapshots") sum += l.bytes();
  return sum;
}

bool is_apart(const Run& run) { return &run.local != &run.prefill; }

// What crossed from prefill to decode.
boost::json::object hand_over_json(const Run& run) {
  const engine::EngineMetrics d = run.local.engine().metrics(), p = run.prefill.engine().metrics();
  return {{"prompts", d.role.decode.landed},
          {"prompt_rows_of_prefill", p.scheduler.prefill_tokens},
          {"prompt_rows_of_decode", d.scheduler.prefill_tokens},
          {"pages_matched", d.role.decode.pages_matched},
          {"pages_moved", d.role.decode.pages_ordered},
          {"page_bytes", p.role.transfer.page_bytes},
          {"state_bytes", p.role.transfer.slot_bytes}};
}

void print_hand_over(const Run& run) {
  const engine::EngineMetrics d = run.local.engine().metrics(), p = run.prefill.engine().metrics();
  print_error(
      fmt::format("{} prompts handed over: {} rows computed by prefill, {} by decode; {} pages were there, {} moved ({:.3f} MB), "
                  "state {:.3f} MB\n",
                  d.role.decode.landed, p.scheduler.prefill_tokens, d.scheduler.prefill_tokens, d.role.decode.pages_matched,
                  d.role.decode.pages_ordered, static_cast<double>(p.role.transfer.page_bytes) / 1e6,
                  static_cast<double>(p.role.transfer.slot_bytes) / 1e6));
}

void print_text(const Run& run) {
  for (const auto& sink : run.sinks)
    for (const GatheringSink::Choice& c : sink->choices()) fmt::print("{}\n", fmt::join(c.tokens, ","));
  std::fflush(stdout);
  const auto mega = [](int64_t bytes) { return static_cast<double>(bytes) / 1e6; };
  print_error(fmt::format("load {:.3f} s ({:.1f} MB weights, {:.1f} MB caches, {:.1f} MB workspace)\n", run.load,
                          mega(run.local.model().weight_bytes()), mega(cache_bytes(run.local.budget())),
                          mega(run.local.model().workspace_bytes())));
  if (is_apart(run)) print_hand_over(run);
  if (run.sinks.size() > 1) {
    int64_t prompt = 0, cached = 0, generated = 0;
    Clock::time_point end = run.submitted;
    for (const auto& sink : run.sinks) {
      prompt += sink->choices().front().usage.prompt_tokens;
      cached += sink->choices().front().usage.cached_tokens;
      for (const GatheringSink::Choice& c : sink->choices()) {
        generated += c.usage.generated_tokens;
        end = std::max(end, c.last);
      }
    }
    const double seconds = seconds_between(run.submitted, end);
    print_error(fmt::format("{} prompts of {} tokens together, {} of them found in the cache; {} generated in {:.3f} s, {}\n",
                            run.sinks.size(), prompt, cached, generated, seconds, rate_text(generated, seconds)));
    return;
  }
  const GatheringSink& sink = *run.sinks.front();
  const Timings t = timings_of(sink, run.submitted);
  const int64_t prompt_tokens = sink.choices().front().usage.prompt_tokens;
  print_error(fmt::format("prefill {} tokens in {:.3f} s, {}\n", prompt_tokens, t.prefill, rate_text(prompt_tokens, t.prefill)));
  print_error(fmt::format("decode {} tokens in {:.3f} s, {}; finished: {}\n", t.decode_steps, t.decode, rate_text(t.decode_steps, t.decode),
                          sched::finish_reason_name(sink.choices().front().reason)));
}

// One object; with --prompts one a line, in the order of the prompts.
void print_json(const Run& run) {
  for (const auto& sink : run.sinks) {
    const Timings t = timings_of(*sink, run.submitted);
    boost::json::object root = answer_json(*sink);
    const int64_t prompt_tokens = sink->choices().front().usage.prompt_tokens;
    root["timings"] = {{"load_s", run.load},   {"prefill_s", t.prefill},         {"prefill_tokens_per_s", rate(prompt_tokens, t.prefill)},
                       {"decode_s", t.decode}, {"decode_steps", t.decode_steps}, {"decode_tokens_per_s", rate(t.decode_steps, t.decode)}};
    root["memory"] = {{"weight_bytes", run.local.model().weight_bytes()},
                      {"cache_bytes", cache_bytes(run.local.budget())},
                      {"workspace_bytes", run.local.model().workspace_bytes()}};
    if (is_apart(run)) root["hand_over"] = hand_over_json(run);
    fmt::print("{}\n", boost::json::serialize(root));
  }
}

void wait_with_progress(const Run& run, int64_t prompt_tokens, int64_t to_generate) {
  constexpr std::chrono::milliseconds kGlance(50);
  Progress progress("prefill", prompt_tokens);
  bool decoding = false;
  for (const auto& sink : run.sinks)
    while (!sink->wait_for(kGlance)) {
      const sched::Metrics m = run.prefill.engine().metrics().scheduler;
      if (!decoding && m.prefill_tokens + m.tokens_matched_state < prompt_tokens) {
        progress.update(m.prefill_tokens + m.tokens_matched_state);
        continue;
      }
      if (!decoding) progress.restart("decode", to_generate);
      decoding = true;
      progress.update(run.local.engine().metrics().scheduler.generated_tokens);
    }
}

Status generate(const Arguments& a) {
  const Clock::time_point start = Clock::now();
  BATON_ASSIGN(const std::vector<std::vector<int32_t>> prompts, read_prompts(a));
  BATON_ASSIGN(const model::Checkpoint checkpoint, model::Checkpoint::open(a.model));
  const model::Config& config = checkpoint.config();
  int64_t longest = 0;
  int64_t prompt_tokens = 0;
  for (size_t i = 0; i < prompts.size(); ++i) {
    BATON_TRY(check_prompt(prompts[i], prompt_name(a, i), config, a));
    longest = std::max(longest, static_cast<int64_t>(prompts[i].size()));
    prompt_tokens += static_cast<int64_t>(prompts[i].size());
  }
  BATON_ASSIGN(engine::LocalOptions options, a.flags.local_options(checkpoint));
  options.context_tokens = longest + a.max_tokens;
  options.prefill_tokens = std::min(options.prefill_tokens, prompt_tokens);
  options.running = static_cast<int32_t>(
      std::clamp<int64_t>(static_cast<int64_t>(prompts.size()) * a.choices, a.choices, std::max(a.running, a.choices)));
  options.max_waiting = std::numeric_limits<int32_t>::max();
  if (prompts.size() == 1) options.snapshots = 0;  // nobody would read them
  options.max_mail = options.max_waiting;
  options.context_flag = "prompt plus --max-tokens";
  if (a.choices >= a.running) options.running_flag = "--n";
  std::vector<std::unique_ptr<GatheringSink>> sinks;  // outlive the engine
  std::unique_ptr<engine::LocalEngine> local;
  std::unique_ptr<engine::SplitEngine> split;
  if (a.apart) {
    if (a.choices > 1) return invalid(fmt::format("--n is {}; with --pd each prompt has one continuation", a.choices));
    BATON_ASSIGN(split, engine::SplitEngine::open(checkpoint, options, {}));
  } else {
    BATON_ASSIGN(local, engine::LocalEngine::open(checkpoint, options));
  }
  engine::LocalEngine& decode = split ? split->decode() : *local;

  Run run{decode, split ? split->prefill() : *local, sinks, seconds_between(start, Clock::now()), Clock::now()};
  for (const std::vector<int32_t>& prompt : prompts) {
    sched::RequestSpec spec;
    spec.prompt = prompt;
    spec.sampling = a.sampling;
    spec.max_tokens = a.max_tokens;
    spec.choices = a.choices;
    if (!a.ignore_eos) spec.stop_tokens = config.eos_token_ids;
    sinks.push_back(std::make_unique<GatheringSink>(a.choices));
    BATON_ASSIGN([[maybe_unused]] const sched::RequestId id, decode.engine().submit(std::move(spec), *sinks.back()));
  }
  wait_with_progress(run, prompt_tokens, static_cast<int64_t>(prompts.size()) * a.choices * a.max_tokens);
  if (split) split->wait_idle();  // so that the counts are whole
  for (size_t i = 0; i < run.sinks.size(); ++i) {
    const GatheringSink& sink = *run.sinks[i];
    if (sink.refusal()) return invalid(fmt::format("{}: {}", prompt_name(a, i), sink.refusal()->message));
    for (const GatheringSink::Choice& c : sink.choices()) {
      if (c.reason == sched::FinishReason::kNotFinite)
        return invalid(fmt::format("the logits of position {} are not numbers; {} is damaged or holds values beyond {}",
                                   prompts[i].size() + c.tokens.size(), a.model, dtype_name(options.numerics.activation)));
      if (c.reason != sched::FinishReason::kStop && c.reason != sched::FinishReason::kLength)
        return Error{Error::Kind::kIo,
                     fmt::format("{} ended early ({}); see the log above", prompt_name(a, i), sched::finish_reason_name(c.reason))};
    }
  }
  a.format == "json" ? print_json(run) : print_text(run);
  return {};
}

}  // namespace

void add_generate(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* c = app.add_subcommand("generate", "Generate token ids from prompts of token ids");
  c->add_option("--model", a->model, "Checkpoint folder (config.json and safetensors)")->required();
  CLI::Option* ids = c->add_option("--prompt-ids", a->prompt_ids, "Prompt as ids separated by commas or spaces");
  CLI::Option* file = c->add_option("--prompt-ids-file", a->prompt_file, "File with the same (or a JSON list of ids)")->excludes(ids);
  CLI::Option* many = c->add_option("--prompts", a->prompts_file, "File with many prompts, a list of ids a line; they run together")
                          ->excludes(ids)
                          ->excludes(file);
  c->add_option("--max-tokens", a->max_tokens, "Tokens to generate")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  c->add_option("--max-running", a->running, "Sequences that run at once")->capture_default_str()->check(CLI::Range(1, 1 << 16));
  c->add_option("--n", a->choices, "Continuations of each prompt")->capture_default_str()->check(CLI::Range(1, 1 << 10));
  c->add_option("--context", a->context, "Refuse prompts that need more tokens than this (default: the model's max_position_embeddings)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  c->add_option("--temperature", a->sampling.temperature, "0: the most likely token")
      ->capture_default_str()
      ->check(between(0, 100, "a number from 0 to 100"));
  c->add_option("--top-p", a->sampling.top_p, "Smallest set of likely tokens with this probability")
      ->capture_default_str()
      ->check(between(1e-6, 1, "a number above 0 and at most 1"));
  c->add_option("--top-k", a->sampling.top_k, "The most likely tokens only; 0: all")->capture_default_str()->check(CLI::Range(0, 1 << 30));
  c->add_option("--min-p", a->sampling.min_p, "Tokens with at least this part of the largest probability; 0: all")
      ->capture_default_str()
      ->check(between(0, 1, "a number from 0 to 1"));
  c->add_option("--repetition-penalty", a->sampling.repetition_penalty, "Divides the logits of tokens seen so far; 1: off")
      ->capture_default_str()
      ->check(between(1e-3, 1e3, "a number from 0.001 to 1000"));
  c->add_option("--frequency-penalty", a->sampling.frequency_penalty, "Taken from logits for every time the token was generated")
      ->capture_default_str()
      ->check(between(-100, 100, "a number from -100 to 100"));
  c->add_option("--presence-penalty", a->sampling.presence_penalty, "Taken from logits of generated tokens, once")
      ->capture_default_str()
      ->check(between(-100, 100, "a number from -100 to 100"));
  c->add_option("--seed", a->sampling.seed, "Seed of sampled tokens")->capture_default_str()->check(whole_number_64());
  c->add_flag("--ignore-eos", a->ignore_eos, "Go on after an end token");
  c->add_flag("--pd", a->apart,
              "Prefill and decode as two instances in this process that hand prompts over; each has the memory that the flags say");
  c->add_option("--format", a->format, "Output")->capture_default_str()->check(CLI::IsMember({"text", "json"}));
  a->flags.add_to(*c);
  c->callback([a, ids, file, many, &exit_code] {
    if (ids->count() + file->count() + many->count() == 0) throw CLI::RequiredError("--prompt-ids, --prompt-ids-file or --prompts");
    exit_code = finish(generate(*a));
  });
}

}  // namespace baton::app
