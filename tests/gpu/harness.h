// What a harness is beside its checks and times: commands, options, exit codes.
//
// usage of every harness: NAME check               cases over shapes and edges
//                         NAME check-small         the few small ones, for compute-sanitizer
//                         NAME time [--json FILE] [--OPTION N ...] SHAPE ...
// Exit 0: all passed; 1: a check failed; 2: usage; 77: there is no device.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace baton::gpu_test {

// Parts of SHAPE between colons.
inline std::vector<std::string> shape_parts(const std::string& shape) {
  std::vector<std::string> parts;
  std::istringstream words(shape);
  for (std::string w; std::getline(words, w, ':');) parts.push_back(w);
  return parts;
}
// Part `index` as a number, or `missing`.
inline int64_t shape_number(const std::vector<std::string>& parts, size_t index, int64_t missing = 0) {
  return index < parts.size() ? std::atoll(parts[index].c_str()) : missing;
}

struct TimeRequest {
  std::map<std::string, int64_t> options;
  std::vector<std::string> shapes;
  std::FILE* json = nullptr;  // a line a shape, or null
};

struct Harness {
  const char* name;
  const char* shape;                       // for example "ROWS[:SPLITS]"
  std::map<std::string, int64_t> options;  // of `time`, with their defaults
  int (*check)(bool small);                // cases that failed
  int (*time)(const TimeRequest& request);
};

inline int harness_usage(const Harness& h) {
  std::string options;
  for (const auto& [name, value] : h.options) options += " [--" + name + " N]";
  std::fprintf(stderr, "usage: %s check | check-small | time [--json FILE]%s %s ...\n", h.name, options.c_str(), h.shape);
  return 2;
}

inline int harness_main(int argc, char** argv, const Harness& h) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("skipped: no CUDA device\n");
    return 77;
  }
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (args.size() == 1 && (args[0] == "check" || args[0] == "check-small")) {
    const int failed = h.check(args[0] == "check-small");
    std::printf(failed == 0 ? "all checks passed\n" : "%d checks FAILED\n", failed);
    return failed == 0 ? 0 : 1;
  }
  if (args.size() < 2 || args[0] != "time") return harness_usage(h);
  TimeRequest request{h.options, {}, nullptr};
  for (size_t i = 1; i < args.size(); ++i) {
    if (args[i].substr(0, 2) != "--") {
      request.shapes.push_back(args[i]);
      continue;
    }
    const std::string option = args[i].substr(2);
    if (i + 1 == args.size()) return harness_usage(h);
    const std::string& value = args[++i];
    if (option == "json") {
      request.json = std::fopen(value.c_str(), "w");
      if (request.json == nullptr) {
        std::fprintf(stderr, "%s: cannot be written\n", value.c_str());
        return 2;
      }
    } else if (request.options.count(option) != 0 && std::atoll(value.c_str()) > 0) {
      request.options[option] = std::atoll(value.c_str());
    } else {
      return harness_usage(h);
    }
  }
  if (request.shapes.empty()) return harness_usage(h);
  const int result = h.time(request);
  if (request.json != nullptr) std::fclose(request.json);
  return result;
}

}  // namespace baton::gpu_test
