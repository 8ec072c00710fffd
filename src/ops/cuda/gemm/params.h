// What the kernel of dense products reads: plain values, pointers and tensor maps, passed by value.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/device/tensor_map.cuh"
#include "ops/cuda/gemm/config.h"

namespace baton::cuda::gemm {

inline constexpr int kMostOutputs = 8;
inline constexpr int kStepBytes = 128;  // of k in a step: 64 bf16 or 128 e4m3

// One weight and where its products go.
struct Output {
  std::byte* y;
  int64_t y_stride;    // elements
  const float* scale;  // FP8: [ceil(n / 128)][k / 128]
  int32_t n;           // a multiple of 2
  int32_t first_tile;  // of its column tiles among those of the launch
  bool is_float;       // of y; otherwise bf16
};

// y = x w^T for up to kMostOutputs weights, or (gated) h = silu(min(x gate^T, limit)) * clamp(x up^T, +-limit) of weights 0 and 1 into
// output 0. Members: parts of x with weights of their own, at equal distances.
struct Params {
  CUtensorMap x;                // [rows, members * x_part]; boxes of the tile's rows
  CUtensorMap w[kMostOutputs];  // [n, k], or all members' one behind the other; boxes of a region (product.cuh)
  Output out[kMostOutputs];
  const float* x_scale;  // FP8: [k / 128][x_scale_stride]
  int64_t x_scale_stride;
  int32_t outputs;
  int32_t rows;
  int32_t steps;  // of k
  int32_t row_tiles, column_tiles;
  int32_t members;
  int32_t x_part;  // columns of x between members
  int32_t w_part;  // rows of w
  int32_t y_part;  // columns of y
  float limit;
};

inline unsigned blocks_of(const Params& p) { return static_cast<unsigned>(p.row_tiles * p.column_tiles * p.members); }

// One per instantiation, in inst/.
cudaError_t start_bf16(const Params& p, Variant variant, bool dependent, cudaStream_t stream);
cudaError_t start_e4m3(const Params& p, Variant variant, bool dependent, cudaStream_t stream);
cudaError_t start_e4m3_gated(const Params& p, Variant variant, bool dependent, cudaStream_t stream);

}  // namespace baton::cuda::gemm
