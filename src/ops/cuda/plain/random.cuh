// Philox4x32-10 on the device: the bits of base/random.h.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace baton::cuda::plain {

// Word `word` at the counter (c0, c1, c2, 0).
__device__ __forceinline__ uint32_t philox_word(uint64_t key, uint32_t c0, uint32_t c1, uint32_t c2, int word) {
  uint32_t c3 = 0;
  auto k0 = static_cast<uint32_t>(key);
  auto k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0;
    const uint64_t p1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return word == 0 ? c0 : word == 1 ? c1 : word == 2 ? c2 : c3;
}
// Uniform in (0, 1): the noise of a token, four of which share a counter.
__device__ __forceinline__ float unit_of_token(uint64_t seed, uint32_t token, uint32_t position, uint32_t stream) {
  const uint32_t bits = philox_word(seed, token >> 2U, position, stream, static_cast<int>(token & 3U));
  return (static_cast<float>(bits >> 9) + 0.5F) * 0x1p-23F;
}

}  // namespace baton::cuda::plain
