// Quantises rows to e4m3 per 128 columns and writes each to all of its slots. One block a row, 16 columns a thread and pass.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/device/reduce.cuh"
#include "ops/cuda/moe/layout.h"

namespace baton::cuda::moe {

inline constexpr int kMaxChoices = 16;

struct QuantiseParams {
  const uint4* x;           // bf16 [rows, width]
  const int32_t* row_slot;  // [rows, choices]
  uint8_t* panels;
  float* scales;  // [width / 128][slots]
  int64_t slots;
  int32_t width;
  int32_t choices;
};

// kParts: passes of a thread over the row. Rows were written before the plan, so they are read and quantised before the plan is waited for.
template <int kParts>
__global__ void __launch_bounds__(256) quantise_rows(QuantiseParams p) {
  const int64_t row = blockIdx.x;
  const int lane = threadIdx.x % 32;
  const int parts = p.width / 16;
  uint4 code[kParts];
  float scale[kParts];
#pragma unroll
  for (int i = 0; i < kParts; ++i) {
    const int part = threadIdx.x + i * blockDim.x;
    uint4 lo = make_uint4(0, 0, 0, 0);
    uint4 hi = lo;
    if (part < parts) {
      lo = __ldg(p.x + (row * p.width + part * 16) / 8);
      hi = __ldg(p.x + (row * p.width + part * 16) / 8 + 1);
    }
    const uint32_t words[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
    float v[16];
    float amax = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      v[2 * j] = bf16_low(words[j]);
      v[2 * j + 1] = bf16_high(words[j]);
      amax = fmaxf(amax, fmaxf(fabsf(v[2 * j]), fabsf(v[2 * j + 1])));
    }
    amax = lanes_max<1, 4>(amax);  // 8 threads hold a block of 128
    scale[i] = e4m3_scale(amax);
    // The quotient is rounded as the CPU rounds it: codes are equal bit for bit.
#pragma unroll
    for (int j = 0; j < 16; ++j) v[j] = __fdiv_rn(v[j], scale[i]);
    code[i] = make_uint4(pack_e4m3x4(v[0], v[1], v[2], v[3]), pack_e4m3x4(v[4], v[5], v[6], v[7]), pack_e4m3x4(v[8], v[9], v[10], v[11]),
                         pack_e4m3x4(v[12], v[13], v[14], v[15]));
  }
  wait_for_predecessor();
  allow_successor();
  const int32_t mine = lane < p.choices ? p.row_slot[row * p.choices + lane] : -1;  // every warp reads the row's slots
  for (uint32_t local = __ballot_sync(0xFFFFFFFFU, mine >= 0); local != 0; local &= local - 1) {
    const int64_t slot = __shfl_sync(0xFFFFFFFFU, mine, __ffs(local) - 1);
#pragma unroll
    for (int i = 0; i < kParts; ++i) {
      const int part = threadIdx.x + i * blockDim.x;
      if (part >= parts) break;
      const int panel = part / 8;
      *reinterpret_cast<uint4*>(p.panels + panel_offset(p.slots, panel, slot, part % 8)) = code[i];
      if (part % 8 == 0) p.scales[panel * p.slots + slot] = scale[i];
    }
  }
}

}  // namespace baton::cuda::moe
