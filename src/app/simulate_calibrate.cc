// baton simulate --cluster --calibrate: from results of bench serve to the costs of cycles, and how far a simulation with them is off.
#include <fmt/format.h>

#include <boost/json/parse.hpp>
#include <cmath>

#include "app/json_members.h"
#include "app/simulate_cluster.h"
#include "base/file.h"
#include "load/arrivals.h"
#include "sim/calibration.h"

namespace baton::app {
namespace {

namespace json = boost::json;

constexpr int64_t kResultLimit = int64_t{1} << 30;

template <class T>
void take(const json::object& o, const char* name, T& into) {
  if (const json::value* v = o.if_contains(name); v != nullptr && v->is_number()) into = v->to_number<T>();
}

template <class... T>
bool take_all(const json::value* v, T&... into) {
  const json::array* list = v != nullptr ? v->if_array() : nullptr;
  if (list == nullptr || list->size() != sizeof...(into)) return false;
  size_t i = 0;
  const auto one = [&]<class X>(X& x) {
    const json::value& value = (*list)[i++];
    if constexpr (std::is_same_v<X, bool>)
      x = value.is_bool() && value.get_bool();
    else if (value.is_number())
      x = value.to_number<X>();
  };
  (one(into), ...);
  return true;
}

std::string text_at(const json::object& o, const char* name) {
  const json::value* v = o.if_contains(name);
  return v != nullptr && v->is_string() ? std::string(v->get_string()) : std::string();
}

// What load_json() wrote.
Result<BenchServeArguments> arguments_of(const json::object& load, const std::string& where) {
  BenchServeArguments a;
  take(load, "seed", a.seed);
  take(load, "num_prompts", a.prompts);
  a.workload = text_at(load, "workload");
  if (!a.workload.empty()) return a;
  a.dataset = text_at(load, "dataset");
  a.dataset_path = text_at(load, "dataset_path");
  take(load, "input", a.input);
  take(load, "output", a.output);
  take(load, "prefix", a.prefix);
  take(load, "zipf", a.zipf);
  if (a.zipf > 0) a.distribution = "zipf";
  load::Range range;
  take_all(load.if_contains("range"), range.low, range.high);
  load::SharedPrefixOptions& s = a.shared;
  load::AgentOptions& g = a.agents;
  take_all(load.if_contains("shared_prefix"), s.groups, s.per_group, s.prefix, s.question, s.output, s.turns, s.ordered);
  take_all(load.if_contains("agents"), g.agents, g.turns, g.system, g.task, g.result, g.output, g.delay_s);
  if (range.low != range.high) a.range_ratio = range.high - 1;
  if (a.dataset.empty() || (range.low != range.high && std::abs(range.low + range.high - 2) > 1e-9))
    return Error{Error::Kind::kInvalid,
                 where + ": its load cannot be made again; measure with --dataset-name or --workload of this version"};
  return a;
}

Result<sim::MeasuredRun> run_of(const json::object& o, const std::string& where) {
  sim::MeasuredRun r;
  int64_t failed = 0;
  take(o, "mean_ttft_ms", r.ttft_ms);
  take(o, "mean_tpot_ms", r.tpot_ms);
  take(o, "output_throughput", r.output_rate);
  take(o, "failed", failed);
  take(o, "max_concurrency", r.concurrency);
  const json::value* load = o.if_contains("load");
  if (load == nullptr || !load->is_object() || !(r.ttft_ms > 0) || !(r.output_rate > 0))
    return Error{Error::Kind::kInvalid,
                 where + " is not what bench serve --json writes: it lacks \"load\", \"mean_ttft_ms\" or \"output_throughput\""};
  if (failed > 0) return Error{Error::Kind::kInvalid, fmt::format("{}: {} of its requests failed; measure again", where, failed)};
  BATON_ASSIGN(BenchServeArguments a, arguments_of(load->get_object(), where));
  BATON_ASSIGN(SimulatedLoad l, simulated_load(a, a.seed));
  r.label = text_at(o, "label");
  if (r.label.empty()) r.label = a.workload.empty() ? a.dataset : a.workload;
  r.workload = std::move(l.workload);
  r.longest = l.longest;
  if (const json::value* rate = o.if_contains("request_rate"); rate != nullptr && rate->is_number()) {
    double burstiness = 1;
    take(o, "burstiness", burstiness);
    r.arrivals = load::arrivals(static_cast<int64_t>(r.workload.size()),
                                {.rate = rate->to_number<double>(), .burstiness = burstiness, .seed = a.seed});
  }
  return r;
}

Result<std::vector<sim::MeasuredRun>> runs_of(const std::vector<std::string>& files) {
  std::vector<sim::MeasuredRun> out;
  for (const std::string& file : files) {
    BATON_ASSIGN(const std::string text, read_file(file, kResultLimit));
    boost::system::error_code failed;
    const json::value value = json::parse(text, failed);
    if (failed || !value.is_object())
      return Error{Error::Kind::kInvalid, file + " is not a JSON object; give a file of bench serve --json"};
    const json::value* several = value.get_object().if_contains("runs");
    const json::array all = several != nullptr && several->is_array() ? several->get_array() : json::array{value};
    for (size_t i = 0; i < all.size(); ++i) {
      const std::string where = fmt::format("{}: run {}", file, i + 1);
      if (!all[i].is_object()) return Error{Error::Kind::kInvalid, where + " is not a JSON object"};
      BATON_ASSIGN(sim::MeasuredRun run, run_of(all[i].get_object(), where));
      out.push_back(std::move(run));
    }
  }
  return out;
}

double off(double is, double should) { return should > 0 ? is / should - 1 : 0; }

void print(const sim::MeasuredRun& measured, const sim::MeasuredRun& s, bool held) {
  fmt::print("{:<28}{:>10.1f}{:>10.1f}{:>+7.1f}%{:>9.2f}{:>9.2f}{:>+7.1f}%{:>10.1f}{:>10.1f}{:>+7.1f}%{}\n", measured.label,
             measured.ttft_ms, s.ttft_ms, 100 * off(s.ttft_ms, measured.ttft_ms), measured.tpot_ms, s.tpot_ms,
             100 * off(s.tpot_ms, measured.tpot_ms), measured.output_rate, s.output_rate, 100 * off(s.output_rate, measured.output_rate),
             held ? "  held out" : "");
}

}  // namespace

Status calibrate_cluster(const SimulateClusterArguments& a) {
  BATON_ASSIGN(std::vector<sim::MeasuredRun> runs, runs_of(a.calibrate));
  if (runs.size() < 2) return Error{Error::Kind::kInvalid, "--calibrate: one run is held out, so give files with two or more"};
  if (a.hold_out > std::ssize(runs))
    return Error{Error::Kind::kInvalid, fmt::format("--hold-out {}: there are only {} runs", a.hold_out, runs.size())};
  const size_t out = a.hold_out > 0 ? static_cast<size_t>(a.hold_out) - 1 : runs.size() - 1;
  std::rotate(runs.begin() + static_cast<std::ptrdiff_t>(out), runs.begin() + static_cast<std::ptrdiff_t>(out) + 1, runs.end());
  SimulatedLoad largest;
  for (const sim::MeasuredRun& r : runs) largest.longest = std::max(largest.longest, r.longest);
  BATON_ASSIGN(const sim::ClusterOptions options, linear_options(a, largest, sim::LinearCost{}));
  const sim::LinearCost cost = sim::fit(options, std::span(runs).first(runs.size() - 1));
  const sim::ClusterOptions fitted = sim::with_cost(options, cost);
  fmt::print("{:<28}{:>10}{:>10}{:>8}{:>9}{:>9}{:>8}{:>10}{:>10}{:>8}\n", "measured, simulated", "TTFT ms", "", "", "TPOT ms", "", "",
             "tokens/s", "", "");
  double sum = 0, most = 0;
  for (size_t i = 0; i < runs.size(); ++i) {
    const sim::MeasuredRun s = sim::simulated(fitted, runs[i]);
    const bool held = i + 1 == runs.size();
    print(runs[i], s, held);
    if (held) continue;
    for (const double e : {off(s.ttft_ms, runs[i].ttft_ms), off(s.output_rate, runs[i].output_rate)}) {
      sum += std::abs(e);
      most = std::max(most, std::abs(e));
    }
  }
  fmt::print("calibration error of TTFT and throughput: {:.1f} % in the mean, {:.1f} % at most\n{}",
             100 * sum / (2 * static_cast<double>(runs.size() - 1)), 100 * most, sim::json_of(cost));
  if (a.write_cost.empty()) return {};
  BATON_ASSIGN(PendingFile file, PendingFile::create(a.write_cost));
  BATON_TRY(file.write(sim::json_of(cost)));
  return file.commit();
}

}  // namespace baton::app
