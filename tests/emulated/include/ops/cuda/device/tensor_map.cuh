// Stands in for the device's header: boxes of 128-byte rows, stored in the 128-byte swizzle.
#pragma once

#include "ops/cuda/device/barrier.cuh"

struct CUtensorMap {
  const std::byte* data;
  int64_t row_stride;
  int box_rows;
};

namespace baton::cuda {

inline void tensor_load(void* shared, const CUtensorMap& map, int32_t col, int32_t row, Barrier& barrier, uint64_t) {
  if (col != 0 || shared_address(shared) % 1024 != 0) std::abort();
  for (int r = 0; r < map.box_rows; ++r)
    for (int chunk = 0; chunk < 8; ++chunk)
      std::memcpy(static_cast<std::byte*>(shared) + r * 128 + ((chunk ^ r % 8) * 16), map.data + (row + r) * map.row_stride + chunk * 16,
                  16);
  barrier.complete(static_cast<uint32_t>(map.box_rows * 128));
}

}  // namespace baton::cuda
