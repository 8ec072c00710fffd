// The costs of an instance's cycles, fitted so that a simulation of runs that were measured gives what was measured.
//
// Threads: none.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "sim/cluster.h"

namespace baton::sim {

// A run of a load on a real server, and what its users saw.
struct MeasuredRun {
  std::string label;
  load::Workload workload;
  std::vector<double> arrivals;  // none: a closed loop
  int64_t concurrency = 0;
  double ttft_ms = 0, tpot_ms = 0, output_rate = 0;  // means; tpot 0: no answer had one
  int64_t longest = 0;                               // prompt and answer, in tokens
};

// What a simulation of the run gives, with the costs that the options' cells have.
MeasuredRun simulated(const ClusterOptions& options, const MeasuredRun& run);
// The same options with these costs for every instance.
ClusterOptions with_cost(ClusterOptions options, const LinearCost& cost);

// The smallest sum of squared errors (as logarithms of ratios) of TTFT, TPOT and throughput over the runs.
LinearCost fit(const ClusterOptions& options, std::span<const MeasuredRun> runs);

// Where `f` is least, near `start`: the simplex method of Nelder and Mead, begun `restarts` times with steps of `step`.
std::vector<double> least(const std::function<double(const std::vector<double>&)>& f, std::vector<double> start, double step,
                          int32_t evaluations, int32_t restarts);

}  // namespace baton::sim
