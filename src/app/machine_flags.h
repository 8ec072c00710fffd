// Flags that say which model runs on which GPUs, of the commands that compute with them instead of running there: plan and simulate.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "plan/planner.h"

namespace baton::app {

struct MachineFlags {
  std::string model;
  std::string gpu = "h200";
  int32_t gpus = 4;
  std::string layout = "both";
  std::string preset;
  std::string latent = "fp8", state = "bf16", drafter = "dflash";
  int32_t drafts = 7;
  double accepted = 0;
  double chunk = 32'768, reserve_gb = 8;
  std::vector<std::string> measured;

  // All but the model.
  void add_to(CLI::App& command);

  bool baseline() const { return preset == "baseline"; }
  // What a preset decides; before the others are asked.
  void settle();
  Result<model::Config> config() const;
  // An error also where the model cannot be run so.
  Result<plan::Machine> machine(const model::Config& config, plan::Layout layout) const;
  Result<plan::Efficiency> efficiency() const;
};

}  // namespace baton::app
