// Puts the splits of a row together, in their order: out_h = sum_i 2^(m_i - m) o_i / sum_i 2^(m_i - m) l_i.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/mla_sparse/params.h"

namespace baton::cuda::mla {

inline constexpr int kCombineHeads = 4;  // of a block, 64 threads each
inline constexpr int kCombineThreads = kCombineHeads * 64;

__global__ void __launch_bounds__(kCombineThreads) combine_splits(const __grid_constant__ AttendParams p) {
  wait_for_predecessor();
  allow_successor();
  const int blocks_a_row = kHeads / kCombineHeads;
  const int item = static_cast<int>(blockIdx.x) / blocks_a_row;  // row and head block
  const int head = static_cast<int>(blockIdx.x) % blocks_a_row * kCombineHeads + static_cast<int>(threadIdx.x) / 64;
  const int row = item / p.head_blocks;
  const int model_head = item % p.head_blocks * kHeads + head;
  if (model_head >= p.heads) return;
  const int dim = static_cast<int>(threadIdx.x) % 64 * 8;
  const float* from = p.partial + int64_t{item} * p.splits * kPartialFloats;
  float top = -__builtin_huge_valf();
  for (int i = 0; i < p.splits; ++i) top = fmaxf(top, from[i * kPartialFloats + kHeads * kDim + head]);
  float sum = 0;
  float out[8] = {};
  for (int i = 0; i < p.splits; ++i) {
    const float* part = from + i * kPartialFloats;
    const float weight = exp2f(part[kHeads * kDim + head] - top);  // 0 for a split without tokens
    sum += weight * part[kHeads * kDim + kHeads + head];
    const float4 a = *reinterpret_cast<const float4*>(part + head * kDim + dim);
    const float4 b = *reinterpret_cast<const float4*>(part + head * kDim + dim + 4);
    const float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int j = 0; j < 8; ++j) out[j] += weight * v[j];
  }
  const float norm = 1.0F / sum;
  const uint4 packed = make_uint4(pack_bf16x2(out[0] * norm, out[1] * norm), pack_bf16x2(out[2] * norm, out[3] * norm),
                                  pack_bf16x2(out[4] * norm, out[5] * norm), pack_bf16x2(out[6] * norm, out[7] * norm));
  *reinterpret_cast<uint4*>(p.out + (int64_t{row} * p.out_stride + int64_t{model_head} * kDim + dim) * 2) = packed;
}

}  // namespace baton::cuda::mla
