#include "app/simulate_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "app/validators.h"
#include "base/file.h"
#include "load/arrivals.h"
#include "load/page.h"

namespace baton::app {
namespace {

using Arguments = SimulateClusterArguments;

constexpr int64_t kMostCostBytes = 1 << 20;
constexpr int64_t kPageTokens = 64;
// Of one instance, in simulated pages: what its bookkeeping takes is bounded, and more would only ever be cache.
constexpr int64_t kMostPages = 65'536;

// Prompts that are coarser than their own part would be computed anew where they are shared.
int64_t grain_of(const SimulatedLoad& l) {
  int64_t grain = 1;
  while (grain < 16 && static_cast<double>(grain) * 2 * kPageTokens * 8 <= l.mean_own) grain *= 2;
  return grain;
}

std::shared_ptr<const sim::CostModel> planned_cost(const model::Config& config, const plan::Machine& m, const plan::Efficiency& e,
                                                   const SimulatedLoad& l) {
  return std::make_shared<sim::GridCost>(sim::GridCost::Functions{
      .decode = [&](double requests, double context) { return plan::decode_point(config, m, e, context, requests).expected_seconds; },
      .prompt = [&](double rows, double past) { return plan::chunk_seconds(config, m, e, rows, past); },
      .most_requests = 4096,
      .most_rows = m.chunk,
      .most_context = static_cast<double>(l.longest)});
}

int32_t fit(double n, double most) { return static_cast<int32_t>(std::clamp(n, 0.0, most)); }

// Memory of an instance of a plan: requests that run, as many as fit in the mean; states that are kept, where it computes prompts; pages.
Status give_memory(const Arguments& a, const model::Config& config, const plan::Machine& m, const SimulatedLoad& l, bool computes,
                   bool decodes, bool shares, sim::InstanceShape& shape) {
  const plan::Room room = plan::room_of(
      config, m.gpu,
      {.layout = m.layout, .gpus = m.gpus, .cache = m.cache, .context_tokens = kPageTokens, .reserve_bytes = m.reserve_bytes}, decodes);
  const auto bytes = static_cast<double>(room.bytes);
  const auto page = static_cast<double>(room.page_bytes), request = static_cast<double>(room.request_bytes);
  const double own = (shares ? l.mean_own : l.mean_prompt) + l.mean_output;
  const double kept = computes && room.snapshot_bytes > 0 ? bytes / 4 / static_cast<double>(room.snapshot_bytes) : 0;
  shape.memory.snapshots = a.snapshots >= 0 ? (computes ? a.snapshots : 0) : fit(kept, 8192);
  const double left = bytes - shape.memory.snapshots * static_cast<double>(room.snapshot_bytes);
  const double fits = left / (request + own / kPageTokens * page);
  shape.memory.slots = decodes ? (a.slots > 0 ? a.slots : fit(fits, 4096)) : a.prefill_slots;
  shape.memory.pages = a.pages > 0 ? a.pages : fit((left - shape.memory.slots * request) / page, 2e9);
  const int64_t least = (l.longest + kPageTokens - 1) / kPageTokens + 2;
  if (shape.memory.slots < 1 || shape.memory.pages < least)
    return Error{Error::Kind::kInvalid, fmt::format("{} x {}: {:.1f} GB beside the weights do not hold one request of {} tokens; take more "
                                                    "or larger GPUs (--gpus, --gpu), or smaller caches (--kv-cache-dtype, --state-dtype)",
                                                    m.gpus, m.gpu.name, bytes / 1e9, l.longest)};
  return {};
}

double rate_of(const std::string& text) {
  char* end = nullptr;
  const double rate = std::strtod(text.c_str(), &end);
  return !text.empty() && *end == '\0' ? rate : 0;
}

std::vector<double> arrivals_of(const Arguments& a, const SimulatedLoad& l, double rate) {
  std::vector<double> out;
  if (a.load.trace_times)
    for (const load::Conversation& c : l.workload) out.push_back(*c.arrival_s);
  else if (!std::isinf(rate))
    out = load::arrivals(static_cast<int64_t>(l.workload.size()), {.rate = rate, .burstiness = a.load.burstiness, .seed = a.load.seed});
  return out;
}

load::Measurement simulate_once(const Arguments& a, const SimulatedLoad& l, sim::ClusterOptions o, double rate, int64_t concurrency,
                                const load::Objective& objective) {
  o.concurrency = concurrency;
  load::Measurement m = sim::measurement_of(sim::run_cluster(o, l.workload, arrivals_of(a, l, rate)), objective, o.cell.accepted);
  m.level = std::isinf(rate) ? static_cast<double>(concurrency) : rate;
  m.settings = {{"simulated", true},
                {"model_id", a.machine.model},
                {"load", load_json(a.load, a.load.seed)},
                {"prefill_instances", o.prefills},
                {"decode_instances", o.decodes},
                {"preset", a.machine.preset},
                {"grain", o.cell.grain},
                {"request_rate", a.load.trace_times ? boost::json::value("trace")
                                 : std::isinf(rate) ? boost::json::value("inf")
                                                    : boost::json::value(rate)},
                {"max_concurrency", concurrency > 0 ? boost::json::value(concurrency) : boost::json::value(nullptr)}};
  return m;
}

// The highest rate at which the objective is kept, to a hundredth: by the means where it is one of means, else by 99 of 100 requests.
load::Measurement highest_rate(const Arguments& a, const SimulatedLoad& l, const sim::ClusterOptions& o, const load::Objective& objective) {
  const auto at = [&](double rate) { return simulate_once(a, l, o, rate, 0, objective); };
  const auto kept = [](const load::Measurement& m) {
    if (m.summary.failed > 0) return false;
    constexpr double kMost = 0.99;
    return m.summary.means_kept.value_or(static_cast<double>(m.summary.good) >= kMost * static_cast<double>(m.summary.completed));
  };
  double low = 0.01 * o.decodes;
  load::Measurement best = at(low);
  if (!kept(best)) return best;
  double high = low;
  for (int i = 0; i < 20; ++i) {
    high *= 2;
    load::Measurement m = at(high);
    if (!kept(m)) break;
    low = high;
    best = std::move(m);
  }
  while (high / low > 1.01) {
    const double middle = std::sqrt(low * high);
    load::Measurement m = at(middle);
    (kept(m) ? low : high) = middle;
    if (low == middle) best = std::move(m);
  }
  return best;
}

std::string title_of(const Arguments& a, const sim::ClusterOptions& o) {
  const std::string what = a.cost_file.empty() ? fmt::format("{} on {} x {}{}", a.machine.model, a.machine.gpus, a.machine.gpu,
                                                             a.machine.baseline() ? ", baseline" : "")
                                               : a.cost_file;
  return fmt::format("Simulated: {}, {} of {}",
                     o.prefills > 0 ? fmt::format("{}P{}D", o.prefills, o.decodes) : fmt::format("{} instances", o.decodes),
                     o.prefills + o.decodes, what);
}

sim::ClusterOptions common_options(const Arguments& a, const SimulatedLoad& l) {
  sim::ClusterOptions o;
  o.prefills = a.prefill;
  o.decodes = a.prefill > 0 ? a.decode : std::max({a.instances, a.decode, 1});
  o.threads = a.threads;
  sim::CellOptions& c = o.cell;
  c.context_tokens = l.longest;
  c.grain = a.grain > 0 ? a.grain : grain_of(l);
  c.most_waiting = a.max_waiting;
  c.link = a.link_gb * 1e9;
  c.message = std::llround(a.message_ms * 1e6);
  c.seed = a.load.seed;
  for (sim::InstanceShape* s : {&c.prefill, &c.decode}) {
    s->chunk = a.chunk > 0 ? a.chunk : static_cast<int64_t>(a.machine.chunk);
    s->snapshot_tokens = a.snapshot_tokens;
  }
  return o;
}

}  // namespace

Result<SimulatedLoad> simulated_load(const BenchServeArguments& a, uint64_t seed) {
  SimulatedLoad l;
  BATON_ASSIGN(l.workload, workload_of(a, seed));
  const auto turns = static_cast<double>(load::turns_of(l.workload));
  for (const load::Conversation& c : l.workload)
    for (const load::Turn& t : c.turns) {
      if (t.prompt.stretches.empty())
        return Error{Error::Kind::kInvalid, "prompts as text have no length that a simulation would know; take another data set"};
      l.mean_prompt += static_cast<double>(t.prompt.tokens()) / turns;
      l.mean_output += static_cast<double>(t.output_tokens) / turns;
      l.longest = std::max(l.longest, t.prompt.tokens() + t.output_tokens);
    }
  l.mean_own = l.mean_prompt * (1 - load::shared_share(l.workload));
  return l;
}

Result<sim::ClusterOptions> linear_options(const Arguments& a, const SimulatedLoad& l, const sim::LinearCost& cost) {
  sim::ClusterOptions o = common_options(a, l);
  sim::CellOptions& c = o.cell;
  c.decode.cost = c.prefill.cost = std::make_shared<sim::LinearCost>(cost);
  const int64_t each = (l.longest + kPageTokens - 1) / kPageTokens + 2;
  const int32_t slots = a.slots > 0 ? a.slots : 16, kept = a.snapshots >= 0 ? a.snapshots : 64;
  const auto pages = a.pages > 0 ? a.pages : static_cast<int32_t>(std::min(kMostPages, each * (slots + kept)));
  if (pages < each) return Error{Error::Kind::kInvalid, fmt::format("--pages {}: a request of {} tokens needs {}", pages, l.longest, each)};
  c.decode.memory = {.pages = pages, .slots = slots, .snapshots = a.prefill == 0 ? kept : 0};
  c.prefill.memory = {.pages = pages, .slots = a.prefill_slots, .snapshots = kept};
  return o;
}

Result<sim::ClusterOptions> cluster_options(const Arguments& a, const SimulatedLoad& l) {
  if (!a.cost_file.empty()) {
    BATON_ASSIGN(const std::string text, read_file(a.cost_file, kMostCostBytes));
    BATON_ASSIGN(const sim::LinearCost cost, sim::parse_cost(text, a.cost_file));
    return linear_options(a, l, cost);
  }
  sim::ClusterOptions o = common_options(a, l);
  sim::CellOptions& c = o.cell;
  const bool unified = a.prefill == 0;
  BATON_ASSIGN(const model::Config config, a.machine.config());
  const plan::Layout layout = a.machine.layout == "tp" ? plan::Layout::kTensor : plan::Layout::kByRequest;
  BATON_ASSIGN(const plan::Machine m, a.machine.machine(config, layout));
  BATON_ASSIGN(const plan::Efficiency e, a.machine.efficiency());
  c.accepted = m.accepted;
  c.share_on_decode = !a.machine.baseline() || unified;
  c.decode.cost = c.prefill.cost = planned_cost(config, m, e, l);
  BATON_TRY(give_memory(a, config, m, l, unified, true, c.share_on_decode, c.decode));
  if (!unified) BATON_TRY(give_memory(a, config, m, l, true, false, true, c.prefill));
  const plan::Room room = plan::room_of(config, m.gpu, {.layout = m.layout, .gpus = m.gpus, .cache = m.cache}, false);
  c.page_bytes = static_cast<double>(room.page_bytes);
  c.slot_bytes = static_cast<double>(room.snapshot_bytes);
  for (sim::InstanceShape* s : {&c.prefill, &c.decode})
    s->memory.pages = static_cast<int32_t>(std::min<int64_t>(s->memory.pages, kMostPages * c.grain));
  return o;
}

Status simulate_cluster(Arguments a) {
  using Clock = std::chrono::steady_clock;
  a.machine.settle();
  if (!a.calibrate.empty()) return calibrate_cluster(a);
  if (a.cost_file.empty() == a.machine.model.empty())
    return Error{Error::Kind::kInvalid, "say what runs: --model with a checkpoint or config.json, or --cost with a file of --calibrate"};
  if (a.prefill > 0 && (a.decode < 1 || a.instances > 0))
    return Error{Error::Kind::kInvalid, "--prefill needs --decode, or leave it out and say --instances"};
  BATON_ASSIGN(const SimulatedLoad l, simulated_load(a.load, a.load.seed));
  if (a.load.trace_times && !l.workload.front().arrival_s)
    return Error{Error::Kind::kInvalid, "--use-trace-timestamps needs a trace that has them: --dataset-name mooncake"};
  BATON_ASSIGN(const load::Objective objective, objective_of(a.load));
  if (a.find_rate && !objective.any()) return Error{Error::Kind::kInvalid, "--find-rate needs an objective: --slo article, or --goodput"};
  std::optional<PendingFile> json_file, html_file;
  for (const auto& [name, file] : {std::pair(&a.json_file, &json_file), std::pair(&a.html_file, &html_file)}) {
    if (name->empty()) continue;
    BATON_ASSIGN(PendingFile pending, PendingFile::create(*name));
    file->emplace(std::move(pending));
  }
  for (const std::string& text : a.load.rates)
    if (!(rate_of(text) > 0)) return Error{Error::Kind::kInvalid, fmt::format("--request-rate {}: say requests per second, or inf", text)};
  BATON_ASSIGN(const sim::ClusterOptions o, cluster_options(a, l));
  const sim::CellOptions& c = o.cell;
  fmt::print("{}\n{} requests of {:.0f} + {:.0f} tokens in the mean, {:.1f} % shared; a simulated token stands for {}, in {} cell{}\n",
             title_of(a, o), load::turns_of(l.workload), l.mean_prompt, l.mean_output, 100 * (1 - l.mean_own / l.mean_prompt), c.grain,
             sim::cells_of(o), sim::cells_of(o) == 1 ? "" : "s");
  for (const auto& [name, s] : {std::pair(o.prefills > 0 ? "decode" : "unified", &c.decode), std::pair("prefill", &c.prefill)})
    if (s != &c.prefill || o.prefills > 0)
      fmt::print("{}: {} requests, {} pages, {} states kept, chunks of {}\n", name, s->memory.slots, s->memory.pages, s->memory.snapshots,
                 s->chunk);
  std::vector<load::Measurement> all;
  const Clock::time_point start = Clock::now();
  const auto show = [&](load::Measurement m, std::string label) {
    m.label = std::move(label);
    fmt::print("{}", load::text_of(m));
    std::fflush(stdout);
    all.push_back(std::move(m));
  };
  if (a.find_rate) {
    load::Measurement best = highest_rate(a, l, o, objective);
    const std::string label = fmt::format("{:.4g} requests/s", best.level);
    show(std::move(best), label);
  } else {
    for (const std::string& text : a.load.rates)
      for (const int64_t concurrency : a.load.concurrencies) {
        const double rate = rate_of(text);
        std::string label;
        if (a.load.rates.size() > 1) label = fmt::format("{} requests/s", text);
        if (a.load.concurrencies.size() > 1) label += fmt::format("{}{} at once", label.empty() ? "" : ", ", concurrency);
        show(simulate_once(a, l, o, rate, concurrency, objective), label);
      }
  }
  const double took = std::chrono::duration<double>(Clock::now() - start).count();
  fmt::print("simulated in {:.1f} s\n", took);
  if (json_file) {
    BATON_TRY(json_file->write(load::json_text(all, false)));
    BATON_TRY(json_file->commit());
  }
  if (html_file) {
    BATON_TRY(html_file->write(load::page_of(all, title_of(a, o))));
    BATON_TRY(html_file->commit());
  }
  return {};
}

void add_cluster_options(CLI::App& c, Arguments& a) {
  const CLI::Range instances(1, 100'000);
  c.add_option("--model", a.machine.model, "cluster: checkpoint folder or config.json of what runs; weights are not read");
  a.machine.add_to(c);
  c.add_option("--cost", a.cost_file, "Instead of a model: costs of cycles that --calibrate has written");
  c.add_option("--instances", a.instances, "Instances that compute their own prompts")->check(instances);
  c.add_option("--prefill", a.prefill, "Instances of prefill, for --decode")->check(instances);
  c.add_option("--decode", a.decode, "Instances of decode")->check(instances);
  c.add_option("--max-num-seqs", a.slots, "Requests that run at once, of an instance; by default what memory holds in the mean")
      ->check(CLI::Range(1, 65'536));
  c.add_option("--prefill-seqs", a.prefill_slots, "Prompts that a prefill instance works on")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  c.add_option("--pages", a.pages, "Pages of 64 tokens of an instance; by default what memory holds")->check(CLI::Range(1, 1 << 28));
  c.add_option("--snapshots", a.snapshots, "States that an instance keeps")->check(CLI::Range(0, 1 << 20));
  c.add_option("--snapshot-tokens", a.snapshot_tokens, "Tokens between two of them, at least")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  c.add_option("--max-num-batched-tokens", a.chunk, "Rows of prompts in a cycle; by default --chunk")->check(CLI::Range(1, 1 << 20));
  c.add_option("--max-queued-requests", a.max_waiting, "Requests in the queue of an instance")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  c.add_option("--link-gb-s", a.link_gb, "GB a second that a prefill instance sends")
      ->check(between(1e-3, 1e6, "a rate in GB/s"))
      ->capture_default_str();
  c.add_option("--message-ms", a.message_ms, "Of a message between two processes")
      ->check(between(0, 1e6, "a time in ms"))
      ->capture_default_str();
  c.add_option("--grain", a.grain, "Tokens that a simulated token stands for; by default by the length of prompts")
      ->check(CLI::Range(1, 4096));
  c.add_option("--threads", a.threads, "Cells that are simulated at once")->check(CLI::Range(1, 256))->capture_default_str();
  add_load_options(c, a.load);
  c.add_option("--request-rate", a.load.rates,
               "Requests per second of the whole cluster; inf: at once, or as --max-concurrency lets; several in turn")
      ->delimiter(',')
      ->capture_default_str();
  c.add_option("--burstiness", a.load.burstiness, "Shape of the gamma distribution of gaps: 1 Poisson, below it bursts, inf evenly")
      ->check(between(1e-3, std::numeric_limits<double>::infinity(), "a number above 0"))
      ->capture_default_str();
  c.add_option("--max-concurrency", a.load.concurrencies, "Conversations at once in the whole cluster; 0: no limit; several in turn")
      ->delimiter(',')
      ->check(CLI::Range(0, 10'000'000));
  c.add_option("--goodput", a.load.goodput, "Limits that a good answer keeps, in ms: ttft:6000 tpot:25 e2el:30000");
  c.add_option("--slo", a.load.objective, "article: mean TTFT below 6 s, mean TPOT below 25 ms")->check(CLI::IsMember({"article"}));
  c.add_flag("--find-rate", a.find_rate, "Look for the highest rate that keeps the objective");
  c.add_option("--json", a.json_file, "Write the figures to this file, named as bench serve names them");
  c.add_option("--html", a.html_file, "Write a page with tables and plots to this file");
  c.add_option("--calibrate", a.calibrate, "JSON files of bench serve on one instance: fit the costs of its cycles to them");
  c.add_option("--hold-out", a.hold_out, "... which run, counted from 1, is left out and predicted; by default the last")
      ->check(CLI::Range(1, 100'000));
  c.add_option("--write-cost", a.write_cost, "... write the costs to this file, for --cost");
}

}  // namespace baton::app
