// Loads that have a name: those of a published comparison, and the same at a thirty-second of the length for small machines.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "load/statistics.h"
#include "load/workload.h"

namespace baton::load {

struct Preset {
  const char* name;
  const char* about;
  int64_t shared, own, output;   // tokens
  int64_t prompts, concurrency;  // by default; published is only the concurrency of 2
};
const std::vector<Preset>& presets();
const Preset* find_preset(const std::string& name);
// One group, its prefix shared by all.
SharedPrefixOptions load_of(const Preset& preset, int64_t prompts, uint64_t seed);

// "article": mean TTFT below 6 s and mean TPOT below 25 ms.
Objective article_objective();

}  // namespace baton::load
