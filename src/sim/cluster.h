// A cluster: cells side by side, a load dealt out among them, and the figures of all together.
//
// A router holds at most router::kMostInstances, so larger fleets are several cells whose clients are dealt out evenly, as a name with many
// addresses does it. Cells know nothing of each other and run on threads of their own.
#pragma once

#include "load/report.h"
#include "sim/cell.h"

namespace baton::sim {

struct ClusterOptions {
  CellOptions cell;  // what each is like; its numbers of instances and places are made here
  int32_t prefills = 0, decodes = 1;
  int64_t concurrency = 0;  // conversations at once; 0: no limit
  int32_t threads = 2;
};

struct ClusterResult {
  load::Run run;
  Histogram gaps;  // ms
  std::vector<double> output_per_second;
  std::vector<Use> instances;
  int32_t cells = 0;
  int64_t events = 0, orders = 0, retried_orders = 0;
};

// Smallest number of cells for so many instances.
int32_t cells_of(const ClusterOptions& options);
// `arrivals` as Cell takes them.
ClusterResult run_cluster(const ClusterOptions& options, const load::Workload& workload, const std::vector<double>& arrivals);

// The figures of a run, and beside them how the instances were used.
load::Measurement measurement_of(const ClusterResult& result, const load::Objective& objective, double accepted);

}  // namespace baton::sim
