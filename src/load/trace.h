// Workloads from JSON lines: traces that only say when, how long and what is shared, and prompts that are written out.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "load/workload.h"

namespace baton::load {

struct TraceOptions {
  int64_t prompts = 0;   // at most; 0: all
  double slowdown = 1;   // arrival times are multiplied by it
  int64_t block = 512;   // tokens that one hash id stands for
  int64_t output = 128;  // of prompts that do not say it
  uint64_t seed = 0;
};

// Mooncake's format: {"timestamp": ms, "input_length": n, "output_length": m, "hash_ids": [...]}. Equal ids are equal tokens; what lies
// behind the last one is the prompt's own. Messages say `where` and the line.
Result<Workload> mooncake_trace(std::string_view text, const std::string& where, const TraceOptions& options);

// {"prompt": "...", "output_tokens": n}; n may be missing.
Result<Workload> custom_prompts(std::string_view text, const std::string& where, const TraceOptions& options);

}  // namespace baton::load
