// Rows of bf16 to e4m3 per 128 columns, row-major, with scales [k / 128][rows]. One block a row, 16 columns a thread and pass.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/device/reduce.cuh"

namespace baton::cuda::gemm {

inline constexpr int kQuantiseThreads = 256;

struct QuantiseParams {
  const std::byte* x;  // bf16
  int64_t x_stride;    // bytes, a multiple of 16
  uint4* codes;        // [rows, k]
  float* scales;
  int64_t scale_stride;
  int32_t k;  // a multiple of 128
};

__global__ void __launch_bounds__(kQuantiseThreads) quantise_rows(QuantiseParams p) {
  wait_for_predecessor();
  allow_successor();
  const int64_t row = blockIdx.x;
  const int parts = p.k / 16;
  const auto* x = reinterpret_cast<const uint4*>(p.x + row * p.x_stride);
  for (int first = 0; first < parts; first += kQuantiseThreads) {  // the same for all threads: lanes exchange maxima
    const int part = first + static_cast<int>(threadIdx.x);
    uint4 low = make_uint4(0, 0, 0, 0);
    uint4 high = low;
    if (part < parts) {
      low = __ldg(x + 2 * part);
      high = __ldg(x + 2 * part + 1);
    }
    const uint32_t words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    float v[16];
    float most = 0;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      v[2 * j] = bf16_low(words[j]);
      v[2 * j + 1] = bf16_high(words[j]);
      most = fmaxf(most, fmaxf(fabsf(v[2 * j]), fabsf(v[2 * j + 1])));
    }
    const float scale = e4m3_scale(lanes_max<1, 4>(most));  // 8 threads hold a block of 128
                                                            // The quotient is rounded as the CPU rounds it: codes are equal bit for bit.
#pragma unroll
    for (float& f : v) f = __fdiv_rn(f, scale);
    if (part >= parts) continue;
    p.codes[row * parts + part] = make_uint4(pack_e4m3x4(v[0], v[1], v[2], v[3]), pack_e4m3x4(v[4], v[5], v[6], v[7]),
                                             pack_e4m3x4(v[8], v[9], v[10], v[11]), pack_e4m3x4(v[12], v[13], v[14], v[15]));
    if (part % 8 == 0) p.scales[part / 8 * p.scale_stride + row] = scale;
  }
}

}  // namespace baton::cuda::gemm
