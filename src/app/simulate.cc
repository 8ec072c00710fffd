// baton simulate: the protocols between instances under virtual time, a bad network and faults.
#include <fmt/format.h>

#include <unistd.h>
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <string>

#include "app/commands.h"
#include "app/simulate_cluster.h"
#include "app/validators.h"
#include "sim/sweep.h"

namespace baton::app {
namespace {

struct Arguments {
  uint64_t seed = 1;
  int64_t hours = 1;
  int64_t until_ms = 0;
  int32_t deep_every = sim::WorldOptions{}.deep_every;
  std::vector<std::string> without;
  std::vector<std::string> only_mishaps;
  std::vector<std::string> only_requests;
  bool trace = false;
  bool no_shrink = false;
  bool coverage = false;
};

// A broken invariant stops the process; then this is how to see it again.
std::string current_world;
void on_abort(int) {
  const ssize_t written = ::write(STDERR_FILENO, current_world.data(), current_world.size());
  static_cast<void>(written);
}

Result<std::optional<std::vector<int32_t>>> numbers(const std::vector<std::string>& texts, const char* flag) {
  if (texts.empty()) return std::optional<std::vector<int32_t>>();
  std::vector<int32_t> list;
  for (const std::string& t : texts) {
    if (t == "none" && texts.size() == 1) break;
    if (t.empty() || t.size() > 9 || t.find_first_not_of("0123456789") != std::string::npos)
      return Error{Error::Kind::kInvalid, fmt::format("{}: '{}' is not a number; give numbers from 0 up, or none", flag, t)};
    list.push_back(std::stoi(t));
  }
  return std::optional(list);
}

Result<sim::WorldOptions> world_options(const Arguments& a) {
  sim::WorldOptions o;
  o.seed = a.seed;
  o.trace = a.trace;
  o.deep_every = a.deep_every;
  if (a.until_ms > 0) o.length = a.until_ms * sim::kMillisecond;
  for (const std::string& fault : a.without) {
    if (sim::fault_bit(fault, o.without)) continue;
    std::string known;
    for (size_t f = 0; f < sim::kFaultKinds; ++f) known += fmt::format("{}{}", f > 0 ? ", " : "", sim::name(static_cast<sim::Fault>(f)));
    return Error{Error::Kind::kInvalid, fmt::format("--without: there is no fault '{}'; there are {}", fault, known)};
  }
  BATON_ASSIGN(o.only_mishaps, numbers(a.only_mishaps, "--only-mishaps"));
  BATON_ASSIGN(o.only_requests, numbers(a.only_requests, "--only-requests"));
  return o;
}

Status report(const Arguments& a, sim::WorldOptions o, sim::Outcome outcome) {
  fmt::print("seed {} at {:.6f} s: {}\n", o.seed, static_cast<double>(outcome.at) / static_cast<double>(sim::kSecond), outcome.violation);
  const std::string whole = sim::command_line(o);
  if (!a.no_shrink) o = sim::shrink(o, outcome);
  if (const std::string small = sim::command_line(o); small != whole) fmt::print("the same, smaller: {} --trace\n", small);
  return Error{Error::Kind::kInvalid, fmt::format("an invariant was broken; see it again with: {}", whole)};
}

Status simulate(const Arguments& a) {
  using Clock = std::chrono::steady_clock;
  BATON_ASSIGN(sim::WorldOptions o, world_options(a));
  std::signal(SIGABRT, on_abort);
  const Clock::time_point start = Clock::now();
  sim::Tally tally;
  for (int64_t hour = 0; hour < a.hours; ++hour) {
    current_world = fmt::format("see it again with: {}\n", sim::command_line(o));
    const sim::Outcome outcome = sim::World(o).run();
    tally.add(outcome.tally);
    if (!outcome.violation.empty()) return report(a, o, outcome);
    ++o.seed;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  const double simulated = static_cast<double>(a.hours) * static_cast<double>(o.length) / static_cast<double>(3600 * sim::kSecond);
  fmt::print("{}", sim::describe(tally));
  fmt::print("{:.1f} s: {:.2f} simulated hours, {:.0f} requests and {:.0f} faults a second\n", seconds, simulated / seconds,
             static_cast<double>(tally.requests) / seconds, static_cast<double>(tally.fault_count()) / seconds);
  const std::string never = sim::missing(tally);
  if (!never.empty()) fmt::print("did not happen:\n{}", never);
  if (a.coverage && !never.empty())
    return Error{Error::Kind::kInvalid, "not everything that may happen has happened; simulate more --hours"};
  return {};
}

}  // namespace

void add_simulate(CLI::App& app, int& exit_code) {
  auto a = std::make_shared<Arguments>();
  CLI::App* command = app.add_subcommand(
      "simulate", "Runs decode and prefill instances in virtual time: against a bad network, or (--cluster) under a load");
  command->add_option("--seed", a->seed, "of the first world; the next hour has the next seed")->capture_default_str();
  command->add_option("--hours", a->hours, "worlds, an hour each")
      ->check(CLI::Range(int64_t{1}, int64_t{10'000'000}))
      ->capture_default_str();
  command->add_option("--until-ms", a->until_ms, "end each world then instead of after an hour")
      ->check(CLI::Range(int64_t{1}, int64_t{3'600'000}));
  command->add_option("--without", a->without, "faults to leave out")->delimiter(',');
  command->add_option("--only-mishaps", a->only_mishaps, "of the seed's mishaps only these numbers, or none")->delimiter(',');
  command->add_option("--only-requests", a->only_requests, "of the seed's requests only these numbers, or none")->delimiter(',');
  command->add_option("--deep-every", a->deep_every, "events of an instance between two checks that recompute everything")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  command->add_flag("--trace", a->trace, "tell what happens");
  command->add_flag("--no-shrink", a->no_shrink, "do not look for a smaller course of events that goes wrong");
  command->add_flag("--coverage", a->coverage, "fail if something that may happen did not");
  auto cluster = std::make_shared<SimulateClusterArguments>();
  CLI::Option* with_cluster = command->add_flag(
      "--cluster", cluster->chosen, "Instead: what a fleet would give its users; --model, --instances or --prefill and --decode, a load");
  const size_t faults = command->get_options().size();
  add_cluster_options(*command, *cluster);
  // What is the cluster's own means nothing without it.
  const std::vector<CLI::Option*> all = command->get_options();
  for (size_t i = faults; i < all.size(); ++i) all[i]->needs(with_cluster)->group("Cluster");
  command->callback([a, cluster, &exit_code] {
    cluster->load.seed = a->seed;
    exit_code = finish(cluster->chosen ? simulate_cluster(*cluster) : simulate(*a));
  });
}

}  // namespace baton::app
