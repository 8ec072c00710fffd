// out[r] = shared[r] + sum over the choices j of weight[r, j] * y[slot(r, j)], in float, in the order of the choices; one rounding.
// One block a row, 8 columns a thread and pass. Choices of other ranks are skipped.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/moe/layout.h"

namespace baton::cuda::moe {

struct CombineParams {
  const uint8_t* y;         // panels of 64 bf16 columns
  const int32_t* row_slot;  // [rows, choices]
  const float* weights;     // [rows, choices]
  const uint4* shared;      // bf16 [rows, width] or null
  uint4* out;               // bf16 [rows, width]
  int64_t slots;
  int32_t width;
  int32_t choices;
};

// kParts: passes of a thread over the row. Slots, weights and the shared row are older than the expert kernel and are read before it is
// waited for.
template <int kParts>
__global__ void __launch_bounds__(256) combine_rows(CombineParams p) {
  const int64_t row = blockIdx.x;
  const int lane = threadIdx.x % 32;
  const int parts = p.width / 8;
  const int32_t slot_of_lane = lane < p.choices ? __ldg(p.row_slot + row * p.choices + lane) : -1;
  const float weight_of_lane = lane < p.choices ? __ldg(p.weights + row * p.choices + lane) : 0;
  float sum[kParts][8];
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const int part = threadIdx.x + i * blockDim.x;
    uint4 s = make_uint4(0, 0, 0, 0);
    if (p.shared != nullptr && part < parts) s = __ldg(p.shared + (row * p.width) / 8 + part);
    const uint32_t words[4] = {s.x, s.y, s.z, s.w};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      sum[i][2 * j] = bf16_low(words[j]);
      sum[i][2 * j + 1] = bf16_high(words[j]);
    }
  }
  uint32_t local = __ballot_sync(0xFFFFFFFFU, slot_of_lane >= 0);
  wait_for_predecessor();
  allow_successor();
  constexpr int kTogether = 2;  // choices whose loads are in flight together
  while (local != 0) {
    uint4 v[kTogether][kParts];
    float w[kTogether];
#pragma unroll
    for (int t = 0; t < kTogether; ++t) {
      const int j = local != 0 ? __ffs(local) - 1 : -1;
      local &= local - 1;
      const int64_t slot = __shfl_sync(0xFFFFFFFFU, slot_of_lane, j < 0 ? 0 : j);
      w[t] = __shfl_sync(0xFFFFFFFFU, weight_of_lane, j < 0 ? 0 : j);
      if (j < 0) w[t] = 0;
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        const int part = threadIdx.x + i * blockDim.x;
        v[t][i] = make_uint4(0, 0, 0, 0);
        if (j >= 0 && part < parts) v[t][i] = *reinterpret_cast<const uint4*>(p.y + panel_offset(p.slots, part / 8, slot, part % 8));
      }
    }
#pragma unroll
    for (int t = 0; t < kTogether; ++t)
#pragma unroll
      for (int i = 0; i < kParts; ++i) {
        const uint32_t words[4] = {v[t][i].x, v[t][i].y, v[t][i].z, v[t][i].w};
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          sum[i][2 * j] = fmaf(w[t], bf16_low(words[j]), sum[i][2 * j]);
          sum[i][2 * j + 1] = fmaf(w[t], bf16_high(words[j]), sum[i][2 * j + 1]);
        }
      }
  }
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const int part = threadIdx.x + i * blockDim.x;
    if (part < parts)
      p.out[(row * p.width) / 8 + part] = make_uint4(pack_bf16x2(sum[i][0], sum[i][1]), pack_bf16x2(sum[i][2], sum[i][3]),
                                                     pack_bf16x2(sum[i][4], sum[i][5]), pack_bf16x2(sum[i][6], sum[i][7]));
  }
}

}  // namespace baton::cuda::moe
