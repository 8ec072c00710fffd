// The consumers with rows on the M side: each warpgroup multiplies 64 rows with both weight blocks (128 columns each), one after the other
// through one scratch accumulator; the other warpgroup keeps the tensor cores busy while this one adds its scratch in float.
//
// A row's 256 columns lie in the four threads of a quad, so SwiGLU and the maximum of a row need no shared memory.
#pragma once

#include "ops/cuda/device/matrix.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/device/reduce.cuh"
#include "ops/cuda/device/wgmma.cuh"
#include "ops/cuda/device/wgmma_e4m3.cuh"
#include "ops/cuda/moe/mlp_consumer.cuh"
#include "ops/cuda/moe/mlp_weight_epilogue.cuh"

namespace baton::cuda::moe {

template <int kRows, int kStages>
class RowConsumer : ConsumerBase<kRows, kStages> {
  using Base = ConsumerBase<kRows, kStages>;
  using Base::announce, Base::at, Base::group, Base::keep, Base::hand_back, Base::leader, Base::p, Base::release_stage, Base::shared,
      Base::unflagged, Base::wait_stage;
  static_assert(kRows == 128 && kStages == 4);  // steps are multiples of 4 (config.cc: supported)

 public:
  __device__ RowConsumer(const MlpParams& params, MlpShared<kRows, kStages>& memory, int warpgroup) : Base(params, memory, warpgroup) {}

  __device__ __forceinline__ void run() {
    Base::each_tile([&](const Tile& tile) {
      const int rows = min(tile.rows - 64 * group, 64);
      if (rows > 0) {
        compute(tile, rows);
      } else {  // the last block of an expert may leave this warpgroup idle
        for (int step = 0; step < tile.steps; ++step) {
          wait_stage();
          release_stage();
        }
      }
    });
  }

 private:
  __device__ __forceinline__ void multiply(float (&part)[64], uint64_t a, uint64_t b) {
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) WgmmaE4m3<128>::run(part, a + 2 * i, b + 2 * i, i);
    wgmma_commit();
  }
  __device__ __forceinline__ void promote(float (&sum)[64], const float (&part)[64], float scale0, float scale1) {
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      sum[4 * j] = fmaf(part[4 * j], scale0, sum[4 * j]);
      sum[4 * j + 1] = fmaf(part[4 * j + 1], scale0, sum[4 * j + 1]);
      sum[4 * j + 2] = fmaf(part[4 * j + 2], scale1, sum[4 * j + 2]);
      sum[4 * j + 3] = fmaf(part[4 * j + 3], scale1, sum[4 * j + 3]);
    }
  }

  __device__ __forceinline__ void compute(const Tile& tile, int rows) {
    float sum[2][64];
#pragma unroll
    for (int i = 0; i < 64; ++i) sum[0][i] = sum[1][i] = 0;
    const int steps =
        tile.steps;  // a multiple of the stages, so every tile begins at stage 0 and addresses are constants in the unrolled loop
    const int row = 64 * group + threadIdx.x / 32 % 4 * 16 + threadIdx.x % 32 / 4;
    for (int first = 0; first < steps; first += kStages) {
#pragma unroll
      for (int stage = 0; stage < kStages; ++stage) {
        const int step = first + stage;
        shared.full[stage].wait(at.parity);
        const uint64_t a = swizzled_operand(shared.rows[stage] + group * 8192);
        float part[64];
        multiply(part, a, swizzled_operand(shared.weights[stage][0]));
        const float s0 = shared.row_scales[stage][row];
        const float s1 = shared.row_scales[stage][row + 8];
        const float w0 = tile.weight_scale[0][step];
        const float w1 = tile.weight_scale[1][step];
        wgmma_wait<0>();
        promote(sum[0], part, s0 * w0, s1 * w0);
        multiply(part, a, swizzled_operand(shared.weights[stage][1]));
        wgmma_wait<0>();
        hand_back(stage);
        promote(sum[1], part, s0 * w1, s1 * w1);
        if (stage == 2 && first == 0) announce();
      }
      at.parity ^= 1;
    }
    announce();
    if (tile.kind == kGateUp) {
      store_gate_up(tile, rows, sum);
      unflagged = tile.flag;
    } else {
      store_down(tile, rows, sum);
    }
  }

  // Columns are stored in the order of weight_source_row(): thread c of a quad holds the outputs 4 c ... 4 c + 3 of every 16.
  __device__ __forceinline__ void store_gate_up(const Tile& tile, int rows, float (&sum)[2][64]) {
    const int warp = threadIdx.x / 32 % 4;
    const int g = threadIdx.x % 32 / 4;
    const int c = threadIdx.x % 4;
    uint8_t* staging = shared.staging[group];
    float* scales = reinterpret_cast<float*>(staging + 8192);
    if (leader()) bulk_wait_read<0>();
    named_barrier(kOneGroup + group, 128);
    float(&v)[64] = sum[0];
    float amax0 = 0;
    float amax1 = 0;
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      v[i] = swiglu(v[i], sum[1][i], p.limit);
      if (i % 4 < 2)
        amax0 = fmaxf(amax0, fabsf(v[i]));
      else
        amax1 = fmaxf(amax1, fabsf(v[i]));
    }
    const float scale0 = e4m3_scale(lanes_max<1, 2>(amax0));
    const float scale1 = e4m3_scale(lanes_max<1, 2>(amax1));
    const float inverse0 = __fdividef(1.0F, scale0);
    const float inverse1 = __fdividef(1.0F, scale1);
    uint8_t* row0 = staging + (16 * warp + g) * kBlock;
    if (c == 0) {
      scales[16 * warp + g] = scale0;
      scales[16 * warp + g + 8] = scale1;
    }
#pragma unroll
    for (int chunk = 0; chunk < 8; ++chunk) {
      const float* even = v + 8 * chunk;
      const int offset = ((chunk ^ g) << 4) + 4 * c;
      *reinterpret_cast<uint32_t*>(row0 + offset) =
          pack_e4m3x4(even[0] * inverse0, even[4] * inverse0, even[1] * inverse0, even[5] * inverse0);
      *reinterpret_cast<uint32_t*>(row0 + 8 * kBlock + offset) =
          pack_e4m3x4(even[2] * inverse1, even[6] * inverse1, even[3] * inverse1, even[7] * inverse1);
    }
    fence_async_shared();
    named_barrier(kOneGroup + group, 128);
    if (leader()) {
      const int64_t slot = static_cast<int64_t>(tile.block) * p.slots + tile.slot + 64 * group;
      bulk_store(p.h + slot * kBlock, staging, static_cast<uint32_t>(rows) * kBlock, keep);
      bulk_store(p.h_scale + slot, scales, static_cast<uint32_t>(rows) * 4, keep);
      bulk_commit();
    }
  }

  __device__ __forceinline__ void store_down(const Tile& tile, int rows, float (&sum)[2][64]) {
    const int warp = threadIdx.x / 32 % 4;
    const int lane = threadIdx.x % 32;
    uint8_t* staging = shared.staging[group];                 // two panels of 64 rows
    const int row = 16 * warp + lane / 8 % 2 * 8 + lane % 8;  // stmatrix: matrices 0, 2 the upper eight rows, 1, 3 the lower
    const uint32_t row_address = shared_address(staging) + row * kBlock;
#pragma unroll
    for (int piece = 0; piece < 2; ++piece) {
      if (leader()) bulk_wait_read<0>();
      named_barrier(kOneGroup + group, 128);
      const float(&v)[64] = sum[piece];
#pragma unroll
      for (int j = 0; j < 16; j += 2) {
        const int chunk = j % 8 + lane / 16;
        store_matrix_x4(row_address + j / 8 * 8192 + ((chunk ^ (row & 7)) << 4), pack_bf16x2(v[4 * j], v[4 * j + 1]),
                        pack_bf16x2(v[4 * j + 2], v[4 * j + 3]), pack_bf16x2(v[4 * j + 4], v[4 * j + 5]),
                        pack_bf16x2(v[4 * j + 6], v[4 * j + 7]));
      }
      fence_async_shared();
      named_barrier(kOneGroup + group, 128);
      if (leader()) {
        const int64_t panel = (static_cast<int64_t>(tile.block) * 2 + piece) * 2;
        for (int i = 0; i < 2; ++i)
          bulk_store(p.y + ((panel + i) * p.slots + tile.slot + 64 * group) * kBlock, staging + i * 8192,
                     static_cast<uint32_t>(rows) * kBlock);
        bulk_commit();
      }
    }
  }
};

}  // namespace baton::cuda::moe
