// Stands in for the device's header: boxes of 128-byte rows, stored in the 128-byte swizzle; what lies outside the matrix reads as zero.
#pragma once

#include <algorithm>

#include "ops/cuda/device/barrier.cuh"

struct CUtensorMap {
  const std::byte* data = nullptr;
  int64_t row_stride = 0;  // bytes
  int box_rows = 0;
  int64_t rows = INT64_MAX;
  int64_t row_bytes = 128;
  int element_bytes = 1;
};
enum CUtensorMapDataType { CU_TENSOR_MAP_DATA_TYPE_UINT8, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 };

namespace baton::cuda {

inline bool make_tensor_map(CUtensorMap* map, const void* data, CUtensorMapDataType, int element_bytes, uint64_t rows, uint64_t cols,
                            uint64_t row_stride_bytes, uint32_t box_rows, uint32_t box_cols) {
  if (box_cols * static_cast<uint32_t>(element_bytes) != 128 || box_rows > 256 || row_stride_bytes % 16 != 0) return false;
  if (reinterpret_cast<uintptr_t>(data) % 16 != 0) return false;
  *map = {static_cast<const std::byte*>(data), static_cast<int64_t>(row_stride_bytes),     static_cast<int>(box_rows),
          static_cast<int64_t>(rows),          static_cast<int64_t>(cols) * element_bytes, element_bytes};
  return true;
}

inline void tensor_load(void* shared, const CUtensorMap& map, int32_t col, int32_t row, Barrier& barrier, uint64_t) {
  if (shared_address(shared) % 1024 != 0) std::abort();
  const int64_t first = int64_t{col} * map.element_bytes;
  for (int r = 0; r < map.box_rows; ++r)
    for (int chunk = 0; chunk < 8; ++chunk) {
      std::byte* to = static_cast<std::byte*>(shared) + r * 128 + ((chunk ^ r % 8) * 16);
      std::memset(to, 0, 16);
      const int64_t bytes = std::clamp<int64_t>(map.row_bytes - first - chunk * 16, 0, 16);
      if (row + r < map.rows) std::memcpy(to, map.data + (row + r) * map.row_stride + first + chunk * 16, static_cast<size_t>(bytes));
    }
  barrier.complete(static_cast<uint32_t>(map.box_rows * 128));
}

}  // namespace baton::cuda
