// The seed of a random test: that of the environment's BATON_SEED, or another one in every run. It is printed, so that a failure can be
// had again.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace baton {

inline uint32_t test_seed() {
  const char* given = std::getenv("BATON_SEED");
  const uint32_t seed = given != nullptr ? static_cast<uint32_t>(std::strtoull(given, nullptr, 10)) : std::random_device{}();
  std::printf("BATON_SEED=%u\n", seed);
  return seed;
}

}  // namespace baton
