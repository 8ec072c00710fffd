// Two-dimensional box copies (TMA tensor maps). The map is built on the host and passed as a `const __grid_constant__ CUtensorMap`
// parameter.
//
// Traps: the inner box size times the element size is the swizzle width (128 bytes); the outer stride is a multiple of 16 bytes;
// coordinates outside the tensor read as zero and are not written; destinations with 128-byte swizzle are aligned to 1,024 bytes.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/device/barrier.cuh"

namespace baton::cuda {

// Row-major [rows, cols] matrix read in boxes of [box_rows, box_cols]. The driver's entry point is looked up at run time: no link with
// libcuda.
inline bool make_tensor_map(CUtensorMap* map, const void* data, CUtensorMapDataType type, int element_bytes, uint64_t rows, uint64_t cols,
                            uint64_t row_stride_bytes, uint32_t box_rows, uint32_t box_cols) {
  using Encode =
      CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                   const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const Encode encode = [] {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found{};
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &found) != cudaSuccess)
      entry = nullptr;
    return reinterpret_cast<Encode>(entry);
  }();
  if (encode == nullptr || box_cols * static_cast<uint32_t>(element_bytes) != 128) return false;
  const cuuint64_t dims[2] = {cols, rows};
  const cuuint64_t strides[1] = {row_stride_bytes};
  const cuuint32_t box[2] = {box_cols, box_rows};
  const cuuint32_t element_strides[2] = {1, 1};
  return encode(map, type, 2, const_cast<void*>(data), dims, strides, box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
                CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

__device__ __forceinline__ void tensor_load(void* shared, const CUtensorMap& map, int32_t col, int32_t row, Barrier& barrier,
                                            uint64_t policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(
          shared_address(shared)),
      "l"(&map), "r"(col), "r"(row), "r"(barrier.address()), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void tensor_store(const CUtensorMap& map, const void* shared, int32_t col, int32_t row) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map), "r"(col), "r"(row),
               "r"(shared_address(shared))
               : "memory");
}
__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

}  // namespace baton::cuda
