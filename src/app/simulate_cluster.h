// baton simulate --cluster: what a fleet of instances would give its users, before there is one.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "app/bench_serve.h"
#include "app/machine_flags.h"
#include "base/result.h"
#include "load/report.h"
#include "sim/cluster.h"

namespace baton::app {

struct SimulateClusterArguments {
  bool chosen = false;
  MachineFlags machine;
  BenchServeArguments load;  // what comes, when, and its objective
  int32_t prefill = 0, decode = 0, instances = 0;
  std::string cost_file;
  int32_t slots = 0, pages = 0, snapshots = -1, prefill_slots = 16;
  int64_t chunk = 0, snapshot_tokens = 256, grain = 0;
  int32_t max_waiting = 1024, threads = 2;
  double link_gb = 50, message_ms = 0.2;
  bool find_rate = false;
  std::string json_file, html_file;

  std::vector<std::string> calibrate;
  int32_t hold_out = 0;
  std::string write_cost;
};

// A load and what is simulated of it.
struct SimulatedLoad {
  load::Workload workload;
  double mean_prompt = 0, mean_own = 0, mean_output = 0;  // tokens; own: not shared with a prompt before
  int64_t longest = 0;                                    // prompt and answer
};
Result<SimulatedLoad> simulated_load(const BenchServeArguments& arguments, uint64_t seed);
Result<sim::ClusterOptions> cluster_options(const SimulateClusterArguments& a, const SimulatedLoad& load);
// Of instances whose cycles cost so much, in memory that the flags tell.
Result<sim::ClusterOptions> linear_options(const SimulateClusterArguments& a, const SimulatedLoad& load, const sim::LinearCost& cost);

void add_cluster_options(CLI::App& command, SimulateClusterArguments& arguments);
Status simulate_cluster(SimulateClusterArguments arguments);
// Fits the costs of cycles to runs that were measured, and says how far a simulation with them is off; see docs/simulate.md.
Status calibrate_cluster(const SimulateClusterArguments& arguments);

}  // namespace baton::app
