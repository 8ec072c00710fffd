// From records to figures. Latencies count from when a request should have been sent, so that a generator falling behind makes them longer,
// never shorter.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "load/record.h"

namespace baton::load {

// In the unit of the samples. Percentiles are interpolated between neighbours, as NumPy does by default.
struct Distribution {
  int64_t count = 0;
  double mean = 0, deviation = 0, p50 = 0, p90 = 0, p95 = 0, p99 = 0, most = 0;
};
Distribution distribution_of(std::vector<double> samples);
// `sorted` is not empty; `share` from 0 to 1.
double percentile(const std::vector<double>& sorted, double share);

// What an answer has to keep to count as good. Limits that are not set hold.
struct Objective {
  std::string name = {};
  std::optional<double> ttft_s = {}, tpot_s = {}, e2e_s = {};
  // A limit of a mean over the run, beside the count of requests that keep it.
  bool of_means = false;

  bool any() const { return ttft_s || tpot_s || e2e_s; }
};
bool keeps(const Record& record, const Objective& objective);

struct Summary {
  double duration_s = 0;  // from the first intended start to the end of the last answer
  int64_t completed = 0, failed = 0, unsent = 0;
  int64_t input_tokens = 0, output_tokens = 0, cached_tokens = 0;  // of completed requests
  int64_t prompts_counted = 0;  // completed requests whose prompt the server counted; of others the asked length is taken
  double request_rate = 0, input_rate = 0, output_rate = 0, total_rate = 0;
  Distribution ttft, tpot, itl, e2e;  // ms
  Distribution ttft_from_sent;        // ms; beside ttft it tells what requests waited in the generator
  double tokens_per_piece = 0;
  double mean_running = 0;  // requests, over the duration

  int64_t good = 0;  // requests that keep the objective
  double goodput = 0, good_output_rate = 0;
  std::optional<bool> means_kept;  // where the objective is one of means

  std::map<std::string, int64_t> failures;      // by kind
  std::map<std::string, std::string> messages;  // the first of each kind
  std::map<std::string, int64_t> mismatches;    // what the answers hold against what was asked; see mismatches_of
  Distribution send_lag, read_lag;              // ms: the generator's own delays

  std::vector<double> output_per_second;   // tokens whose pieces arrived within each second of the run
  std::vector<double> running_per_second;  // requests under way, in the mean of each second
};

Summary summary_of(const Run& run, const Objective& objective);

}  // namespace baton::load
