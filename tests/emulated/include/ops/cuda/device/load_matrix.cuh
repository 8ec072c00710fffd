// Stands in for the device's header: ldmatrix.
#pragma once

#include "ops/cuda/device/barrier.cuh"

namespace baton::cuda {

inline uint16_t emulated_element(int matrix, int row, int column) {
  uint16_t v = 0;
  std::memcpy(&v, emulated::shared + emulated::words().of[8 * matrix + row][0] + 2 * column, 2);
  return v;
}
inline void load_matrix_x4(uint32_t row_address, uint32_t (&w)[4]) {
  const int g = emulated::lane() / 4;
  const int c = emulated::lane() % 4;
  emulated::words().of[emulated::lane()][0] = row_address;
  emulated::sync_warp();
  for (int i = 0; i < 4; ++i) w[i] = emulated_element(i, g, 2 * c) | static_cast<uint32_t>(emulated_element(i, g, 2 * c + 1)) << 16;
  emulated::sync_warp();
}
inline void load_matrix_transposed_x4(uint32_t row_address, uint32_t (&w)[4]) {
  const int g = emulated::lane() / 4;
  const int c = emulated::lane() % 4;
  emulated::words().of[emulated::lane()][0] = row_address;
  emulated::sync_warp();
  for (int i = 0; i < 4; ++i) w[i] = emulated_element(i, 2 * c, g) | static_cast<uint32_t>(emulated_element(i, 2 * c + 1, g)) << 16;
  emulated::sync_warp();
}

}  // namespace baton::cuda
