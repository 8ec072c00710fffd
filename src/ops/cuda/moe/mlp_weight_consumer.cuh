// The consumers with weights on the M side: two warpgroups, each 64 rows of both weight blocks times the tile's rows, whose number is
// padded to 8 only. For few rows an expert.
//
// Every step of 128 k is summed by the tensor cores into a scratch accumulator and added in float with (row scale * weight scale).
#pragma once

#include "ops/cuda/device/wgmma.cuh"
#include "ops/cuda/device/wgmma_e4m3.cuh"
#include "ops/cuda/moe/mlp_consumer.cuh"
#include "ops/cuda/moe/mlp_weight_epilogue.cuh"

namespace baton::cuda::moe {

template <int kRows, int kStages>
class WeightConsumer : ConsumerBase<kRows, kStages> {
  using Base = ConsumerBase<kRows, kStages>;
  using Base::announce, Base::at, Base::group, Base::keep, Base::p, Base::release_stage, Base::shared, Base::unflagged, Base::wait_stage;

 public:
  __device__ WeightConsumer(const MlpParams& params, MlpShared<kRows, kStages>& memory, int warpgroup) : Base(params, memory, warpgroup) {}

  __device__ __forceinline__ void run() {
    Base::each_tile([&](const Tile& tile) { widths<8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 104, 112, 120, 128>(tile); });
  }

 private:
  template <int kWidth>
  __device__ __forceinline__ void products(float (&part)[kWidth / 2], uint64_t a, uint64_t b) {
#pragma unroll
    for (int i = 0; i < 4; ++i) WgmmaE4m3<kWidth>::run(part, a + 2 * i, b + 2 * i, i);
  }

  template <int kWidth>
  __device__ __forceinline__ void promote(float (&sum)[kWidth / 2], const float (&part)[kWidth / 2], const float2* row_scale,
                                          float weight_scale) {
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j) {
      const float2 s = row_scale[4 * j];
      const float s0 = s.x * weight_scale;
      const float s1 = s.y * weight_scale;
      sum[4 * j] = fmaf(part[4 * j], s0, sum[4 * j]);
      sum[4 * j + 1] = fmaf(part[4 * j + 1], s1, sum[4 * j + 1]);
      sum[4 * j + 2] = fmaf(part[4 * j + 2], s0, sum[4 * j + 2]);
      sum[4 * j + 3] = fmaf(part[4 * j + 3], s1, sum[4 * j + 3]);
    }
  }

  template <int kWidth>
  __device__ __forceinline__ void compute(const Tile& tile) {
    float sum[2][kWidth / 2];
#pragma unroll
    for (int i = 0; i < kWidth / 2; ++i) sum[0][i] = sum[1][i] = 0;
    const int steps = tile.steps;
    for (int step = 0; step < steps; ++step) {
      wait_stage();
      const uint64_t a0 = swizzled_operand(shared.weights[at.index][0] + group * (kBlockBytes / 2));
      const uint64_t a1 = swizzled_operand(shared.weights[at.index][1] + group * (kBlockBytes / 2));
      const uint64_t b = swizzled_operand(shared.rows[at.index]);
      const float2* row_scale = reinterpret_cast<const float2*>(shared.row_scales[at.index]) + threadIdx.x % 4;
      const float w0 = tile.weight_scale[0][step];
      const float w1 = tile.weight_scale[1][step];
      if constexpr (kWidth <= 96) {  // the sums of one block are promoted while the products of the other run
        float part[2][kWidth / 2];
        wgmma_fence();
        products<kWidth>(part[0], a0, b);
        wgmma_commit();
        products<kWidth>(part[1], a1, b);
        wgmma_commit();
        wgmma_wait<1>();
        pin_registers(part[0]);
        promote<kWidth>(sum[0], part[0], row_scale, w0);
        wgmma_wait<0>();
        pin_registers(part[1]);
        promote<kWidth>(sum[1], part[1], row_scale, w1);
      } else {  // one scratch for both: the other warpgroup keeps the tensor cores busy meanwhile
        float part[kWidth / 2];
        wgmma_fence();
        products<kWidth>(part, a0, b);
        wgmma_commit();
        wgmma_wait<0>();
        promote<kWidth>(sum[0], part, row_scale, w0);
        wgmma_fence();
        products<kWidth>(part, a1, b);
        wgmma_commit();
        wgmma_wait<0>();
        promote<kWidth>(sum[1], part, row_scale, w1);
      }
      release_stage();
      if (step == 2) announce();
    }
    announce();
    if (tile.kind == kGateUp) {
      store_gate_up<kWidth>(p, tile, shared.staging[0], shared.staging[1], group, keep, sum);
      if (group == 0) unflagged = tile.flag;
    } else {
      store_down<kWidth>(p, tile, shared.staging[group], group, keep, sum);
    }
  }

  // The narrowest instantiation that holds the rows.
  template <int kWidth, int... kWider>
  __device__ __forceinline__ void widths(const Tile& tile) {
    constexpr bool kUsed = kWidth <= kRows && (kRows <= 64 || kWidth >= 32 || kWidth % 16 == 0);
    if constexpr (sizeof...(kWider) == 0 || kWidth == kRows) {
      compute<kWidth>(tile);
    } else if constexpr (!kUsed) {
      widths<kWider...>(tile);
    } else {
      if (tile.rows <= kWidth)
        compute<kWidth>(tile);
      else
        widths<kWider...>(tile);
    }
  }
};

}  // namespace baton::cuda::moe
