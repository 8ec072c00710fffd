// baton bench speculation: what drafters are worth on the same prompts, one after the other in one run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <random>

#include "app/commands.h"
#include "app/id_list.h"
#include "app/model_flags.h"
#include "app/validators.h"
#include "base/file.h"
#include "engine/gathering_sink.h"

namespace baton::app {
namespace {

using Clock = std::chrono::steady_clock;

struct Arguments {
  ModelFlags flags;
  std::string model;
  std::string prompts_file;
  int32_t running = 8;
  int64_t prompt = 128;
  int64_t generate = 128;
  int32_t count = 16;
  float temperature = 0;
  uint64_t seed = 1;
  std::string json_file;
};

struct Row {
  std::string name;
  int32_t drafts = 0;
  double seconds = 0;    // of the whole round
  int64_t tokens = 0;    // generated in it
  int64_t cycles = 0;    // that only decode
  double sequences = 0;  // that decode, in the mean of these
  engine::CycleTimes times;
  speculate::Metrics speculation;
  int64_t drafted_blocks = 0, tokens_of_blocks = 0;  // behind each answer's first token: cycles of the sequence, and what became text
  double decoding_s = 0;                             // from first to last token, of all answers together
  int64_t slot_bytes = 0, ring_bytes = 0, page_bytes = 0;
  cache::Budget budget;
  std::vector<std::vector<int32_t>> texts;

  double rate() const { return static_cast<double>(tokens) / seconds; }
  double accepted() const { return speculation.blocks > 0 ? speculation.accepted_length() : 1; }
  // Tokens of text for each cycle of a sequence: the accepted length but for what ends cut off.
  double kept() const { return drafted_blocks > 0 ? static_cast<double>(tokens_of_blocks) / static_cast<double>(drafted_blocks) : 1; }
  int64_t parts() const { return times.fold + times.draft + times.verify + times.accept + times.commit; }
  // Tokens a second of a sequence while it decodes: as its parts say it should be, and as it was.
  double predicted_rate() const { return cycles > 0 ? kept() / (milliseconds(parts()) * 1e-3) : 0; }
  double measured_rate() const { return decoding_s > 0 ? static_cast<double>(tokens_of_blocks) / decoding_s : 0; }
  double milliseconds(int64_t part) const { return cycles > 0 ? static_cast<double>(part) * 1e-6 / static_cast<double>(cycles) : 0; }
};

Result<std::vector<std::vector<int32_t>>> prompts_of(const Arguments& a, int64_t vocabulary) {
  std::vector<std::vector<int32_t>> prompts;
  if (a.prompts_file.empty()) {
    std::mt19937_64 random(1);
    for (int32_t i = 0; i < a.count; ++i) {
      auto& p = prompts.emplace_back();
      for (int64_t k = 0; k < a.prompt; ++k) p.push_back(static_cast<int32_t>(random() % static_cast<uint64_t>(vocabulary)));
    }
    return prompts;
  }
  BATON_ASSIGN(const std::string text, read_file(a.prompts_file, int64_t{1} << 30));
  size_t line = 1;
  for (size_t begin = 0; begin < text.size() && std::ssize(prompts) < a.count; ++line) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string row = text.substr(begin, end - begin);
    begin = end + 1;
    if (row.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}:{}", a.prompts_file, line);
    BATON_ASSIGN(prompts.emplace_back(), parse_id_list(row, where));
    for (const int32_t id : prompts.back())
      if (id < 0 || id >= vocabulary)
        return Error{Error::Kind::kInvalid,
                     fmt::format("{}: {} is no token of this model; its ids go from 0 to {}", where, id, vocabulary - 1)};
  }
  if (prompts.empty()) return Error{Error::Kind::kInvalid, fmt::format("{} holds no prompt; give one list of ids a line", a.prompts_file)};
  return prompts;
}

// The runs: first without drafts, then the drafter that was asked for; else all that the model and the flags offer.
std::vector<engine::Speculation> runs_of(const engine::Speculation& asked, bool has_mtp) {
  std::vector<engine::Speculation> runs(1);
  const auto add = [&](std::string_view algorithm) -> engine::Speculation& {
    runs.push_back(asked);
    runs.back().algorithm = algorithm;
    return runs.back();
  };
  if (asked.algorithm == "none" && has_mtp) {
    engine::Speculation& mtp = add("NEXTN");
    mtp.draft_model.clear();
    mtp.sampled_proposals = false;
  }
  if (asked.algorithm == "NEXTN" || asked.algorithm == "EAGLE") add(asked.algorithm);
  if (asked.algorithm == "DFLASH" || (asked.algorithm == "none" && (!asked.draft_model.empty() || asked.sampled_proposals))) {
    add("DFLASH").sampled_proposals = false;
    if (asked.sampled_proposals) add("DFLASH");
  }
  return runs;
}

int64_t context_of(const Arguments& a, const std::vector<std::vector<int32_t>>& prompts) {
  size_t longest = 0;
  for (const auto& p : prompts) longest = std::max(longest, p.size());
  return static_cast<int64_t>(longest) + a.generate;
}

// Before the first of them runs: the last one's flags may be wrong, and each takes its time.
Status check_runs(const Arguments& a, const model::Checkpoint& checkpoint, std::vector<engine::Speculation> runs, int64_t context) {
  BATON_ASSIGN(const engine::LocalOptions options, a.flags.local_options(checkpoint));
  if (runs.size() == 1) runs.push_back(a.flags.speculation);  // flags of drafting, and nothing that drafts
  for (const engine::Speculation& s : runs) {
    const auto source = engine::choose_drafter(s, checkpoint.config(), options.numerics.activation, context);
    if (!source.ok()) return source.error();
  }
  return {};
}

Result<Row> measure(const Arguments& a, const model::Checkpoint& checkpoint, const std::vector<std::vector<int32_t>>& prompts,
                    const engine::Speculation& speculation) {
  BATON_ASSIGN(engine::LocalOptions options, a.flags.local_options(checkpoint));
  options.speculation = speculation;
  options.context_tokens = context_of(a, prompts);
  options.running = a.running;
  options.max_waiting = std::numeric_limits<int32_t>::max();
  options.snapshots = 0;  // every prompt is computed, whoever comes first
  options.context_flag = "prompt plus --max-tokens";
  std::vector<std::unique_ptr<engine::GatheringSink>> sinks;  // outlive the engine
  BATON_ASSIGN(const auto local, engine::LocalEngine::open(checkpoint, options));
  Row row;
  row.name = local->drafter().name;
  if (speculation.sampled_proposals) row.name += " sampled";
  row.drafts = local->drafter().needs.most_drafts;
  const model::CacheLayout& layout = local->model().cache_layout();
  row.slot_bytes = layout.slot_bytes;
  row.ring_bytes = layout.ring_bytes;
  row.page_bytes = layout.page_bytes;
  row.budget = local->budget();

  const Clock::time_point begin = Clock::now();
  for (const auto& prompt : prompts) {
    sched::RequestSpec spec;
    spec.prompt = prompt;
    spec.max_tokens = a.generate;
    spec.stop_tokens = checkpoint.config().eos_token_ids;
    spec.cache_prompt = false;
    spec.sampling.temperature = a.temperature;
    spec.sampling.seed = a.seed + sinks.size();
    sinks.push_back(std::make_unique<engine::GatheringSink>());
    BATON_ASSIGN([[maybe_unused]] const sched::RequestId id, local->engine().submit(std::move(spec), *sinks.back()));
  }
  for (const auto& sink : sinks) {
    sink->wait();
    if (sink->refusal()) return *sink->refusal();
    const engine::GatheringSink::Choice& said = sink->choices()[0];
    row.texts.push_back(said.tokens);
    row.tokens += std::ssize(said.tokens);
    row.tokens_of_blocks += std::ssize(said.tokens) - 1;
    row.drafted_blocks += std::ssize(said.tokens) - 1 - said.usage.accepted_tokens;
    row.decoding_s += std::chrono::duration<double>(said.last - said.first).count();
  }
  row.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  local->engine().wait_idle();
  const engine::EngineMetrics m = local->engine().metrics();
  row.times = m.decoding;
  row.cycles = m.decoding_cycles;
  row.sequences = m.decoding_cycles > 0 ? static_cast<double>(m.decoding_sequences) / static_cast<double>(m.decoding_cycles) : 0;
  row.speculation = m.scheduler.speculation;
  return row;
}

// Of decoding, in times that of the run without drafts.
double predicted(const Row& r, const Row& none) { return r.predicted_rate() / none.predicted_rate(); }
double measured(const Row& r, const Row& none) { return r.measured_rate() / none.measured_rate(); }

boost::json::object to_json(const Row& r, const Row& none) {
  boost::json::array lengths, drafted, accepted;
  for (const int64_t n : r.speculation.blocks_of) lengths.emplace_back(n);
  for (const int64_t n : r.speculation.drafted_at) drafted.emplace_back(n);
  for (const int64_t n : r.speculation.accepted_at) accepted.emplace_back(n);
  return {{"drafter", r.name},
          {"drafts", r.drafts},
          {"accepted_length", r.accepted()},
          {"drafted", r.speculation.drafted},
          {"accepted", r.speculation.accepted},
          {"drafted_at", std::move(drafted)},
          {"accepted_at", std::move(accepted)},
          {"blocks_by_length", std::move(lengths)},
          {"tokens", r.tokens},
          {"seconds", r.seconds},
          {"tokens_per_s", r.rate()},
          {"speed_up", r.rate() / none.rate()},
          {"decode_speed_up_predicted", predicted(r, none)},
          {"decode_speed_up", measured(r, none)},
          {"cycle_ms", boost::json::object{{"fold", r.milliseconds(r.times.fold)},
                                           {"draft", r.milliseconds(r.times.draft)},
                                           {"verify", r.milliseconds(r.times.verify)},
                                           {"accept", r.milliseconds(r.times.accept)},
                                           {"commit", r.milliseconds(r.times.commit)},
                                           {"all", r.milliseconds(r.times.all)}}},
          {"request_bytes", r.budget.requests.bytes_each},
          {"requests_that_fit", r.budget.requests.fit},
          {"slot_bytes", r.slot_bytes},
          {"ring_bytes", r.ring_bytes},
          {"page_bytes", r.page_bytes},
          {"same_tokens", r.texts == none.texts}};
}

Status bench(const Arguments& a) {
  std::optional<PendingFile> json;  // now, so that a path that cannot be written is found before the work
  if (!a.json_file.empty()) {
    BATON_ASSIGN(PendingFile file, PendingFile::create(a.json_file));
    json.emplace(std::move(file));
  }
  BATON_ASSIGN(const model::Checkpoint checkpoint, model::Checkpoint::open(a.model));
  BATON_ASSIGN(const auto prompts, prompts_of(a, checkpoint.config().vocab_size));
  const auto all = runs_of(a.flags.speculation, checkpoint.config().mtp_layers > 0);
  BATON_TRY(check_runs(a, checkpoint, all, context_of(a, prompts)));

  std::vector<Row> rows;
  fmt::print("{} prompts, {} at once, up to {} tokens each\n", prompts.size(), a.running, a.generate);
  fmt::print("{:>14} {:>7} {:>9} {:>8} {:>9} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}  {:>10} {:>9} {:>5}\n", "drafter", "drafts", "accepted",
             "tok/s", "speed-up", "cycle", "fold", "draft", "verify", "accept", "commit", "slot bytes", "of it ring", "same");
  for (const engine::Speculation& s : all) {
    BATON_ASSIGN(rows.emplace_back(), measure(a, checkpoint, prompts, s));
    const Row& r = rows.back();
    const auto part = [&r](int64_t t) { return r.milliseconds(t); };
    fmt::print("{:>8} {:>7} {:>9.2f} {:>8.1f} {:>9.2f} {:>7.2f} {:>7.2f} {:>7.2f} {:>7.2f} {:>7.2f} {:>7.2f}  {:>10} {:>10} {:>5}\n",
               r.name, r.drafts, r.accepted(), r.rate(), r.rate() / rows[0].rate(), part(r.times.all), part(r.times.fold),
               part(r.times.draft), part(r.times.verify), part(r.times.accept), part(r.times.commit), r.slot_bytes, r.ring_bytes,
               r.texts == rows[0].texts ? "yes" : "no");
  }
  fmt::print("parts of a cycle in milliseconds, of cycles that only decode; same: the text is that without drafts\n");
  for (size_t i = 1; i < rows.size(); ++i)
    fmt::print(
        "{}: {:.2f} tokens kept for each cycle and its parts predict {:.2f} times the decoding without drafts; "
        "measured {:.2f}, which is {:.2f} of that\n",
        rows[i].name, rows[i].kept(), predicted(rows[i], rows[0]), measured(rows[i], rows[0]),
        measured(rows[i], rows[0]) / predicted(rows[i], rows[0]));
  for (const Row& r : rows) fmt::print("\nmemory, drafter {}\n{}", r.name, r.budget.table());
  if (!json) return {};
  boost::json::array list;
  for (const Row& r : rows) list.emplace_back(to_json(r, rows[0]));
  BATON_TRY(json->write(boost::json::serialize(boost::json::object{{"running", a.running}, {"drafters", std::move(list)}}) + "\n"));
  return json->commit();
}

}  // namespace

void add_bench_speculation(CLI::App& group, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* c = group.add_subcommand(
      "speculation",
      "Accepted length, parts of a cycle and throughput: without drafts, and with --speculative-algorithm, else with MTP and DFlash2");
  c->add_option("--model", a->model, "Checkpoint folder")->required();
  c->add_option("--prompts", a->prompts_file, "File with a list of ids a line (default: random ids, which no drafter foresees)");
  c->add_option("--count", a->count, "Prompts at most")->capture_default_str()->check(CLI::Range(1, 1 << 16));
  c->add_option("--max-running", a->running, "Sequences that run at once")->capture_default_str()->check(CLI::Range(1, 1 << 12));
  c->add_option("--prompt-tokens", a->prompt, "Tokens of a random prompt")->capture_default_str()->check(CLI::Range(1, 1 << 20));
  c->add_option("--max-tokens", a->generate, "Tokens to generate")->capture_default_str()->check(CLI::Range(2, 1 << 20));
  c->add_option("--temperature", a->temperature, "0: the most likely token; else drawn")
      ->capture_default_str()
      ->check(between(0, 100, "a number from 0 to 100"));
  c->add_option("--seed", a->seed, "Of the first prompt's tokens; the others' follow")->capture_default_str()->check(whole_number_64());
  c->add_option("--json", a->json_file, "Also write the figures to this file");
  a->flags.add_to(*c);
  c->callback([a, &exit_code] { exit_code = finish(bench(*a)); });
}

}  // namespace baton::app
