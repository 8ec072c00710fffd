// What `bench serve` was told, and the parts of it that are not the command line itself.
#pragma once

#include <CLI/CLI.hpp>
#include <boost/json/object.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "app/chat_endpoint.h"
#include "load/arrivals.h"
#include "load/runner.h"
#include "load/statistics.h"
#include "load/workload.h"

namespace baton::app {

struct BenchServeArguments {
  // The server.
  std::string base_url, host = "127.0.0.1", endpoint, backend = "openai", model, ca_file;
  int port = 8000;
  bool insecure = false;
  std::vector<std::string> headers;
  double ready_s = 60, silence_s = 600;
  bool flush_cache = false;

  // The load.
  std::string workload, dataset = "random", dataset_path;
  int64_t prompts = 0;  // 0: what the data set has, or 100
  uint64_t seed = 0;
  int64_t input = 1024, output = 128, prefix = 0;
  std::optional<double> range_ratio;
  load::SharedPrefixOptions shared;
  std::string distribution = "uniform";
  double zipf = 1;
  load::AgentOptions agents;
  double slowdown = 1;
  int64_t block = 512;
  load::Vocabulary vocabulary;
  bool as_text = false;

  // How it is sent.
  std::vector<std::string> rates{"inf"};
  std::vector<int64_t> concurrencies{0};
  bool trace_times = false;
  double burstiness = 1, concurrency_ramp_s = 0, time_limit_s = 0;
  std::string ramp;
  double ramp_start = 0, ramp_end = 0;
  int64_t repeats = 1, warmups = 1;
  bool keep_eos = false;
  bool as_usual = false;  // of flags of other load generators that ask for what is done anyway
  double temperature = 0;
  std::string extra_body;

  // What is made of it.
  std::vector<std::string> goodput;
  std::string objective;
  std::string json_file, html_file;
  bool detailed = false;
  std::vector<std::string> compare;

  bool chat() const { return backend.find("chat") != std::string::npos; }
};

// Flags that choose the data set, but for --seed.
void add_load_options(CLI::App& command, BenchServeArguments& arguments);
// The data set with its seed.
Result<load::Workload> workload_of(const BenchServeArguments& arguments, uint64_t seed);
// What the requests of a run depend on: two runs with equal loads ask the same.
boost::json::object load_json(const BenchServeArguments& arguments, uint64_t seed);
// Of --goodput ("ttft:6000") and --slo.
Result<load::Objective> objective_of(const BenchServeArguments& arguments);

// Counters of speculation; none where the server shows none.
struct SpeculationCount {
  double blocks = 0, accepted = 0;
};
std::optional<SpeculationCount> speculation_of(const ChatEndpoint& endpoint);
// As SGLang shows it, in the mean since the server was started.
std::optional<double> accepted_since_start(const ChatEndpoint& endpoint);
Status flush_cache(const ChatEndpoint& endpoint);

}  // namespace baton::app
