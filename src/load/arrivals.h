// When conversations begin in an open loop: gaps drawn from a gamma distribution, at a rate that may rise.
#pragma once

#include <cstdint>
#include <vector>

namespace baton::load {

enum class Ramp : uint8_t { kNone, kLinear, kExponential };

struct ArrivalOptions {
  double rate = 1;  // per second
  // The gamma distribution's shape: 1 are Poisson arrivals, below it they come in bursts, above it more evenly; infinity: exactly evenly.
  double burstiness = 1;
  Ramp ramp = Ramp::kNone;
  double start_rate = 0, end_rate = 0;  // of a ramp, from the first to the last arrival; `rate` is not used then
  uint64_t seed = 0;
};

// Seconds from the start, not decreasing; the first is 0.
std::vector<double> arrivals(int64_t count, const ArrivalOptions& options);

}  // namespace baton::load
