// Epilogues with weights on the M side. Accumulators are transposed: a thread holds, for the rows (slots) 8 j + 2 c and + 1, the outputs g
// and g + 8 of its warp's 16; in memory the outputs of a slot are contiguous. stmatrix with .trans turns them.
#pragma once

#include "ops/cuda/device/barrier.cuh"
#include "ops/cuda/device/bulk_copy.cuh"
#include "ops/cuda/device/matrix.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/device/reduce.cuh"
#include "ops/cuda/moe/expert_mlp_params.h"
#include "ops/cuda/moe/mlp_shared.cuh"

namespace baton::cuda::moe {

inline constexpr uint32_t kBothGroups = 1;  // named barriers
inline constexpr uint32_t kOneGroup = 2;    // + group

__device__ __forceinline__ float swiglu(float gate, float up, float limit) {
  const float g = fminf(gate, limit);
  const float u = fminf(fmaxf(up, -limit), limit);
  return __fdividef(g, 1.0F + __expf(-g)) * u;
}

// Transposes 8 x 8 tiles j, j + 1, ... of 16-bit units into rows of 128 bytes with the panel swizzle; unit(j) gives this thread's register.
template <int kWidth, class Unit16>
__device__ __forceinline__ void store_chunk(uint8_t* tile, int chunk, const Unit16& unit) {
  const int lane = threadIdx.x % 32;
  const int row = lane % 8;
  constexpr int kTiles = kWidth / 8;
  const uint32_t base = shared_address(tile) + row * kBlock + ((chunk ^ row) << 4);
#pragma unroll
  for (int j = 0; j + 4 <= kTiles; j += 4)
    store_matrix_transposed_x4(base + (j + lane / 8) * 1024, unit(j), unit(j + 1), unit(j + 2), unit(j + 3));
  constexpr int kRest = kTiles % 4;
  constexpr int kFirst = kTiles - kRest;
  if constexpr (kRest >= 2) store_matrix_transposed_x2(base + (kFirst + lane / 8 % 2) * 1024, unit(kFirst), unit(kFirst + 1));
  if constexpr (kRest % 2 == 1) store_matrix_transposed_x1(base + (kTiles - 1) * 1024, unit(kTiles - 1));
}

// h = SwiGLU of the two accumulators, quantised per slot over the 128 outputs of both warpgroups.
template <int kWidth>
__device__ __forceinline__ void store_gate_up(const MlpParams& p, const Tile& tile, uint8_t* staging, uint8_t* scratch, int group,
                                              uint64_t keep, float (&sum)[2][kWidth / 2]) {
  float* maxima = reinterpret_cast<float*>(scratch);  // [warp][slot]
  float* scales = maxima + kConsumerWarps * kWidth;   // [slot] scale
  float* inverse = scales + kWidth;                   // [slot] 1 / scale
  const int thread = group * 128 + threadIdx.x % 128;
  const int warp = thread / 32;
  const int lane = thread % 32;
  const bool leader = threadIdx.x % 128 == 0;
  if (leader) bulk_wait_read<0>();  // the last tile has left the staging memory
  named_barrier(kBothGroups, 256);

  float(&v)[kWidth / 2] = sum[0];
#pragma unroll
  for (int j = 0; j < kWidth / 8; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) v[4 * j + i] = swiglu(v[4 * j + i], sum[1][4 * j + i], p.limit);
    const float m0 = lanes_max<4, 16>(fmaxf(fabsf(v[4 * j]), fabsf(v[4 * j + 2])));
    const float m1 = lanes_max<4, 16>(fmaxf(fabsf(v[4 * j + 1]), fabsf(v[4 * j + 3])));
    if (lane < 4) *reinterpret_cast<float2*>(maxima + warp * kWidth + 8 * j + 2 * lane) = make_float2(m0, m1);
  }
  named_barrier(kBothGroups, 256);
  if (thread < kWidth) {
    float amax = 0;
#pragma unroll
    for (int w = 0; w < kConsumerWarps; ++w) amax = fmaxf(amax, maxima[w * kWidth + thread]);
    const float scale = e4m3_scale(amax);
    scales[thread] = scale;
    inverse[thread] = __fdividef(1.0F, scale);
  }
  fence_async_shared();  // the scales leave by a bulk store
  named_barrier(kBothGroups, 256);
  store_chunk<kWidth>(staging, warp, [&](int j) {
    const float2 s = *reinterpret_cast<const float2*>(inverse + 8 * j + 2 * (lane % 4));
    return pack_e4m3x2(v[4 * j] * s.x, v[4 * j + 2] * s.x) | (pack_e4m3x2(v[4 * j + 1] * s.y, v[4 * j + 3] * s.y) << 16);
  });
  fence_async_shared();
  named_barrier(kBothGroups, 256);
  if (leader && group == 0) {
    bulk_store(p.h + (static_cast<int64_t>(tile.block) * p.slots + tile.slot) * kBlock, staging, static_cast<uint32_t>(tile.rows) * kBlock,
               keep);
    bulk_store(p.h_scale + static_cast<int64_t>(tile.block) * p.slots + tile.slot, scales, static_cast<uint32_t>(tile.rows) * 4, keep);
    bulk_commit();
  }
}

// y in bf16, panels of 64 columns: each warpgroup stores its 64 of either block.
template <int kWidth>
__device__ __forceinline__ void store_down(const MlpParams& p, const Tile& tile, uint8_t* staging, int group, uint64_t keep,
                                           float (&sum)[2][kWidth / 2]) {
  const int warp = threadIdx.x / 32 % 4;
  const bool leader = threadIdx.x % 128 == 0;
#pragma unroll
  for (int piece = 0; piece < 2; ++piece) {
    if (leader) bulk_wait_read<0>();
    named_barrier(kOneGroup + group, 128);
    const float(&v)[kWidth / 2] = sum[piece];
    store_chunk<kWidth>(staging, 2 * warp, [&](int j) { return pack_bf16x2(v[4 * j], v[4 * j + 1]); });
    store_chunk<kWidth>(staging, 2 * warp + 1, [&](int j) { return pack_bf16x2(v[4 * j + 2], v[4 * j + 3]); });
    fence_async_shared();
    named_barrier(kOneGroup + group, 128);
    if (leader) {
      const int64_t panel = (static_cast<int64_t>(tile.block) * 2 + piece) * 2 + group;
      bulk_store(p.y + (panel * p.slots + tile.slot) * kBlock, staging, static_cast<uint32_t>(tile.rows) * kBlock, keep);
      bulk_commit();
    }
  }
}

}  // namespace baton::cuda::moe
