// From a checkpoint's dimensions, a GPU and a load to times, throughput, the ratio of prefill to decode instances, and what limits them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "plan/measurements.h"
#include "plan/memory.h"
#include "plan/work.h"

namespace baton::plan {

// How near to its floor each op comes. What was measured (bench/gpu) counts by its name; everything else by what good kernels reach.
struct Efficiency {
  double memory = 0.88, compute = 0.82, peer = 0.80;  // shares of the ceilings
  double kernel_seconds = 2e-6;                       // to fill and drain one
  Shares measured;                                    // op to share of its floor
};

double expected_seconds(const Work& work, const Gpu& gpu, const Efficiency& efficiency);

struct Load {
  double prompt_tokens = 65'536;
  double output_tokens = 1024;
  double shared = 0;       // share of the prompt that the cache holds already
  double concurrency = 0;  // requests that users keep running at a decode instance; 0: as many as the limits let
  double tpot_seconds = 0.025;
  double ttft_seconds = 6;  // in the mean
};

struct Machine {
  Gpu gpu;
  int32_t gpus = 4;  // of an instance
  Layout layout = Layout::kByRequest;
  CacheChoice cache;
  double accepted = 1;  // tokens a cycle and request, at most cache.rows
  double chunk = 32'768;
  bool split_experts = false;  // of prefill
  bool fp8_transport = true;
  int64_t reserve_bytes = 8'000'000'000;
};

enum class Limit : uint8_t { kMemory, kTpot, kConcurrency, kNothingFits, kTooSlow };
const char* limit_text(Limit limit);

struct DecodePoint {
  double requests = 0;
  double floor_seconds = 0;  // of a cycle
  double expected_seconds = 0;
  double tpot_seconds = 0;
  double tokens_per_second = 0;
};

struct DecodePlan {
  Memory memory;
  Limit limit = Limit::kNothingFits;
  DecodePoint point;               // at what the limits let; zero where nothing fits or no number of requests is fast enough
  std::vector<Work> work;          // of that cycle
  std::vector<DecodePoint> curve;  // from one request to what memory holds
};

struct PrefillPlan {
  std::vector<double> chunk_seconds;  // of one prompt, in order
  std::vector<Work> work;             // of the chunk in the middle
  double ttft_seconds = 0;            // of a prompt that finds the instance idle
  double tokens_per_second = 0;       // computed, that is, without what the cache held
  double requests_per_second = 0;     // under which the mean time to the first token holds (Poisson arrivals, one prompt after the other)
};

struct Plan {
  DecodePlan decode;
  PrefillPlan prefill;
  double decode_requests_per_second = 0;
  double prefill_per_decode = 0;  // instances of prefill that keep one of decode busy; 0 where decode or prefill does nothing
};

DecodePoint decode_point(const model::Config& config, const Machine& machine, const Efficiency& efficiency, double context,
                         double requests);
// What a chunk of a prompt is expected to take; `past`: tokens before a row of it, in the mean.
double chunk_seconds(const model::Config& config, const Machine& machine, const Efficiency& efficiency, double chunk, double past);
Plan make_plan(const model::Config& config, const Machine& machine, const Load& load, const Efficiency& efficiency);

// What one change would give.
struct Change {
  std::string name;
  double tokens_per_second = 0;  // of a decode instance
  double per_gpu = 0;            // change of throughput per GPU as a share: 0.1 is 10 % more
};
// Every change that is possible here and gives at least a hundredth more per GPU, best first.
std::vector<Change> helpful_changes(const model::Config& config, const Machine& machine, const Load& load, const Efficiency& efficiency);

}  // namespace baton::plan
