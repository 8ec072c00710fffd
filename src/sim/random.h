// A stream of random numbers for simulations: small, and the same everywhere for the same seed.
#pragma once

#include <cstdint>

namespace baton::sim {

class Random {
 public:
  // Streams of one seed are independent of each other, so that leaving something out changes nothing else.
  Random(uint64_t seed, uint64_t stream, uint64_t part = 0) : state_(scramble(seed ^ scramble(stream ^ scramble(part)))) {}

  uint64_t next() { return scramble(state_ += 0x9E3779B97F4A7C15U); }
  // 0 ... n - 1; n > 0
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  // low ... high
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  double unit() { return static_cast<double>(next() >> 11U) * 0x1p-53; }
  bool chance(double p) { return unit() < p; }

  // SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
  static constexpr uint64_t scramble(uint64_t x) {
    x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
    x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
    return x ^ (x >> 31U);
  }

 private:
  uint64_t state_;
};

}  // namespace baton::sim
