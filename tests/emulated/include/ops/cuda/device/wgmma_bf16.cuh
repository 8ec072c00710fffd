// Stands in for the device's header: m64nXk16, sums in double.
#pragma once

#include "ops/cuda/device/wgmma.cuh"
#include "tensor/number.h"

namespace baton::cuda {

// Element (row, k) of a K-major operand in the 128-byte swizzle; + 2 for each 16 elements of k.
inline float swizzled_bf16(uint64_t operand, int row, int k) {
  const auto base = static_cast<int>(operand * 16);
  const int at = base % 128 + 2 * k;  // of the row
  bf16 v{};
  std::memcpy(&v, emulated::shared + base / 128 * 128 + row * 128 + ((at / 16) ^ row % 8) * 16 + at % 16, 2);
  return to_float(v);
}
// Element (k, column) of a columns-first operand: slabs of 64 columns.
inline float columns_bf16(uint64_t operand, int k, int column) {
  const auto base = static_cast<int>((operand & 0xFFFFFFFF) * 16);
  bf16 v{};
  std::memcpy(
      &v,
      emulated::shared + base + column / 64 * static_cast<int>(operand >> 32) + k * 128 + ((column % 64 / 8) ^ k % 8) * 16 + column % 8 * 2,
      2);
  return to_float(v);
}

template <int kWidth>
struct WgmmaBf16 {
  template <bool kColumnsFirst = false>
  static void run(float (&d)[kWidth / 2], uint64_t a, uint64_t b, int accumulate) {
    const int row = static_cast<int>(emulated::thread_index.x) / 32 % 4 * 16 + emulated::lane() / 4;
    double rows[2][16];
    for (int k = 0; k < 16; ++k)
      for (int half = 0; half < 2; ++half) rows[half][k] = static_cast<double>(swizzled_bf16(a, row + 8 * half, k));
    for (int j = 0; j < kWidth / 8; ++j)
      for (int i = 0; i < 2; ++i) {
        const int column = 8 * j + 2 * (emulated::lane() % 4) + i;
        double sum[2] = {0, 0};
        for (int k = 0; k < 16; ++k) {
          const auto x = static_cast<double>(kColumnsFirst ? columns_bf16(b, k, column) : swizzled_bf16(b, column, k));
          for (int half = 0; half < 2; ++half) sum[half] += rows[half][k] * x;
        }
        for (int half = 0; half < 2; ++half) {
          float& to = d[4 * j + 2 * half + i];
          to = static_cast<float>((accumulate != 0 ? static_cast<double>(to) : 0.0) + sum[half]);
        }
      }
  }
};

}  // namespace baton::cuda
