// Row-major weights to packed blocks, 16 bytes a thread. Runs once at load.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/moe/layout.h"

namespace baton::cuda::moe {

__global__ void pack_weight_rows(uint8_t* packed, const uint8_t* row_major, int64_t n, int64_t k, bool permute_rows) {
  const int64_t chunks = n * (k / 16);
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < chunks;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const int64_t row = i / (k / 16);
    const int64_t col = i % (k / 16) * 16;
    const int64_t source = permute_rows ? weight_source_row(row) : row;
    *reinterpret_cast<uint4*>(packed + weight_offset(k / kBlock, row, col)) = *reinterpret_cast<const uint4*>(row_major + source * k + col);
  }
}

}  // namespace baton::cuda::moe
