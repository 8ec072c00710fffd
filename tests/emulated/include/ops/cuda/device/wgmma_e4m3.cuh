// Stands in for the device's header: m64nXk32, sums in double.
#pragma once

#include <array>

#include "ops/cuda/device/wgmma.cuh"
#include "tensor/number.h"

namespace baton::cuda {

// Element k of a row in the 128-byte swizzle; `operand` as from swizzled_operand(), + 2 for each 32 elements.
inline float swizzled_code(uint64_t operand, int row, int k) {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> v{};
    for (int i = 0; i < 256; ++i) v[static_cast<size_t>(i)] = to_float(e4m3{static_cast<uint8_t>(i)});
    return v;
  }();
  const auto base = static_cast<int>(operand * 16);
  const int at = base % 128 + k;  // of the row
  return values[std::to_integer<uint8_t>(emulated::shared[base / 128 * 128 + row * 128 + ((at / 16) ^ row % 8) * 16 + at % 16])];
}

template <int kWidth>
struct WgmmaE4m3 {
  static void run(float (&d)[kWidth / 2], uint64_t a, uint64_t b, int accumulate) {
    const int row = static_cast<int>(emulated::thread_index.x) / 32 % 4 * 16 + emulated::lane() / 4;
    float rows[2][32];
    for (int k = 0; k < 32; ++k)
      for (int half = 0; half < 2; ++half) rows[half][k] = swizzled_code(a, row + 8 * half, k);
    for (int j = 0; j < kWidth / 8; ++j)
      for (int i = 0; i < 2; ++i) {
        double sum[2] = {0, 0};
        for (int k = 0; k < 32; ++k) {
          const auto x = static_cast<double>(swizzled_code(b, 8 * j + 2 * (emulated::lane() % 4) + i, k));
          for (int half = 0; half < 2; ++half) sum[half] += static_cast<double>(rows[half][k]) * x;
        }
        for (int half = 0; half < 2; ++half) {
          float& to = d[4 * j + 2 * half + i];
          to = static_cast<float>((accumulate != 0 ? static_cast<double>(to) : 0.0) + sum[half]);
        }
      }
  }
};

}  // namespace baton::cuda
