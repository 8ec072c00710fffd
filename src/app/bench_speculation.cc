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
  int64_t slot_bytes = 0, ring_bytes = 0, page_bytes = 0;
  std::vector<std::vector<int32_t>> texts;

  double rate() const { return static_cast<double>(tokens) / seconds; }
  double accepted() const { return speculation.blocks > 0 ? speculation.accepted_length() : 1; }
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
    BATON_ASSIGN(prompts.emplace_back(), parse_id_list(row, fmt::format("{}:{}", a.prompts_file, line)));
  }
  if (prompts.empty()) return Error{Error::Kind::kInvalid, fmt::format("{} holds no prompt; give one list of ids a line", a.prompts_file)};
  return prompts;
}

Result<Row> measure(const Arguments& a, const model::Checkpoint& checkpoint, const std::vector<std::vector<int32_t>>& prompts,
                    const engine::Speculation& speculation) {
  BATON_ASSIGN(engine::LocalOptions options, a.flags.local_options(checkpoint));
  options.speculation = speculation;
  size_t longest = 0;
  for (const auto& p : prompts) longest = std::max(longest, p.size());
  options.context_tokens = static_cast<int64_t>(longest) + a.generate;
  options.running = a.running;
  options.max_waiting = std::numeric_limits<int32_t>::max();
  options.snapshots = 0;  // every prompt is computed, whoever comes first
  options.context_flag = "prompt plus --max-tokens";
  std::vector<std::unique_ptr<engine::GatheringSink>> sinks;  // outlive the engine
  BATON_ASSIGN(const auto local, engine::LocalEngine::open(checkpoint, options));
  Row row;
  row.name = local->drafter().name;
  row.drafts = local->drafter().needs.most_drafts;
  const model::CacheLayout& layout = local->model().cache_layout();
  row.slot_bytes = layout.slot_bytes;
  row.ring_bytes = layout.ring_bytes;
  row.page_bytes = layout.page_bytes;

  const Clock::time_point begin = Clock::now();
  for (const auto& prompt : prompts) {
    sched::RequestSpec spec;
    spec.prompt = prompt;
    spec.max_tokens = a.generate;
    spec.stop_tokens = checkpoint.config().eos_token_ids;
    spec.cache_prompt = false;
    sinks.push_back(std::make_unique<engine::GatheringSink>());
    BATON_ASSIGN([[maybe_unused]] const sched::RequestId id, local->engine().submit(std::move(spec), *sinks.back()));
  }
  for (const auto& sink : sinks) {
    sink->wait();
    if (sink->refusal()) return *sink->refusal();
    row.texts.push_back(sink->choices()[0].tokens);
    row.tokens += std::ssize(row.texts.back());
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

// What the mean cycle and the accepted length make of it: tokens of a sequence per second of decoding.
double decode_rate(const Row& r) { return r.cycles > 0 ? r.accepted() * r.sequences / (r.milliseconds(r.times.all) * 1e-3) : 0; }

boost::json::object to_json(const Row& r, const Row& none) {
  boost::json::array lengths;
  for (const int64_t n : r.speculation.blocks_of) lengths.emplace_back(n);
  return {{"drafter", r.name},
          {"drafts", r.drafts},
          {"accepted_length", r.accepted()},
          {"drafted", r.speculation.drafted},
          {"accepted", r.speculation.accepted},
          {"blocks_by_length", std::move(lengths)},
          {"tokens", r.tokens},
          {"seconds", r.seconds},
          {"tokens_per_s", r.rate()},
          {"speed_up", r.rate() / none.rate()},
          {"decode_tokens_per_s", decode_rate(r)},
          {"decode_speed_up", decode_rate(r) / decode_rate(none)},
          {"cycle_ms", boost::json::object{{"fold", r.milliseconds(r.times.fold)},
                                           {"draft", r.milliseconds(r.times.draft)},
                                           {"verify", r.milliseconds(r.times.verify)},
                                           {"accept", r.milliseconds(r.times.accept)},
                                           {"commit", r.milliseconds(r.times.commit)},
                                           {"all", r.milliseconds(r.times.all)}}},
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
  engine::Speculation mtp = a.flags.speculation;
  mtp.algorithm = "NEXTN";
  mtp.draft_model.clear();
  engine::Speculation dflash;
  dflash.algorithm = "DFLASH";
  dflash.draft_model = a.flags.speculation.draft_model;
  std::vector<engine::Speculation> all = {{}, mtp};
  if (!dflash.draft_model.empty()) all.push_back(dflash);
  if (checkpoint.config().mtp_layers == 0) all.erase(all.begin() + 1);

  std::vector<Row> rows;
  fmt::print("{} prompts, {} at once, up to {} tokens each\n", prompts.size(), a.running, a.generate);
  fmt::print("{:>8} {:>7} {:>9} {:>8} {:>9} {:>7} {:>7} {:>7} {:>7} {:>7} {:>7}  {:>10} {:>9} {:>5}\n", "drafter", "drafts", "accepted",
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
  for (size_t i = 1; i < rows.size(); ++i)
    fmt::print("{}: accepted length and mean cycles (of those that only decode) give {:.2f} times the decoding without drafts\n",
               rows[i].name, decode_rate(rows[i]) / decode_rate(rows[0]));
  fmt::print("parts of a cycle in milliseconds\n");
  if (!json) return {};
  boost::json::array list;
  for (const Row& r : rows) list.emplace_back(to_json(r, rows[0]));
  BATON_TRY(json->write(boost::json::serialize(boost::json::object{{"running", a.running}, {"drafters", std::move(list)}}) + "\n"));
  return json->commit();
}

}  // namespace

void add_bench_speculation(CLI::App& group, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* c =
      group.add_subcommand("speculation", "Accepted length, parts of a cycle and throughput: without drafts, with MTP, with DFlash2");
  c->add_option("--model", a->model, "Checkpoint folder")->required();
  c->add_option("--prompts", a->prompts_file, "File with a list of ids a line (default: random ids, which no drafter foresees)");
  c->add_option("--count", a->count, "Prompts at most")->capture_default_str()->check(CLI::Range(1, 1 << 16));
  c->add_option("--max-running", a->running, "Sequences that run at once")->capture_default_str()->check(CLI::Range(1, 1 << 12));
  c->add_option("--prompt-tokens", a->prompt, "Tokens of a random prompt")->capture_default_str()->check(CLI::Range(1, 1 << 20));
  c->add_option("--max-tokens", a->generate, "Tokens to generate")->capture_default_str()->check(CLI::Range(2, 1 << 20));
  c->add_option("--json", a->json_file, "Also write the figures to this file");
  a->flags.add_to(*c);
  c->callback([a, &exit_code] { exit_code = finish(bench(*a)); });
}

}  // namespace baton::app
