// Stands in for the device's header: mma m16n8k16, products and sums in double.
#pragma once

#include "ops/cuda/device/number.cuh"

namespace baton::cuda {

inline void mma_bf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  auto& lanes = emulated::words().of;
  auto& mine = lanes[emulated::lane()];
  mine[0] = a0, mine[1] = a1, mine[2] = a2, mine[3] = a3, mine[4] = b0, mine[5] = b1;
  emulated::sync_warp();
  const int g = emulated::lane() / 4;
  const int c = emulated::lane() % 4;
  for (int e = 0; e < 4; ++e) {
    double sum = static_cast<double>(d[e]);
    for (int q = 0; q < 4; ++q)
      for (int upper = 0; upper < 2; ++upper) {
        const uint32_t a = lanes[4 * g + q][e / 2 + 2 * upper];
        const uint32_t b = lanes[4 * (2 * c + e % 2) + q][4 + upper];
        sum += static_cast<double>(bf16_low(a)) * static_cast<double>(bf16_low(b));
        sum += static_cast<double>(bf16_high(a)) * static_cast<double>(bf16_high(b));
      }
    d[e] = static_cast<float>(sum);
  }
  emulated::sync_warp();
}

inline void mma_bf16_k8(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b0) { mma_bf16(d, a0, a1, 0, 0, b0, 0); }

}  // namespace baton::cuda
