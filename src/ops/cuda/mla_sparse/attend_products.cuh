// Cache rows as fragments of products: keys with tokens on the M side, values with dimensions on the M side. FP8 rows are widened here,
// in registers, and exist as 16-bit numbers nowhere else.
//
// A batch is what is converted and issued together: two k-steps of keys, or one k-step of two 64-dimension blocks of values; both are
// eight registers a thread and two products.
#pragma once

#include <cstdint>

#include "ops/cuda/device/load_matrix.cuh"
#include "ops/cuda/device/wgmma.cuh"
#include "ops/cuda/device/wgmma_registers.cuh"
#include "ops/cuda/mla_sparse/attend_shared.cuh"

namespace baton::cuda::mla {

__device__ __forceinline__ uint32_t multiply_halves(uint32_t a, uint32_t b) {
  asm("mul.rn.f16x2 %0, %0, %1;" : "+r"(a) : "r"(b));
  return a;
}
// Four e4m3 as two pairs of halves, each times a pair of factors.
__device__ __forceinline__ void widen(uint32_t word, uint32_t factor, uint32_t& low, uint32_t& high) {
  asm("{\n .reg .b16 l, h;\n mov.b32 {l, h}, %2;\n cvt.rn.f16x2.e4m3x2 %0, l;\n cvt.rn.f16x2.e4m3x2 %1, h;\n}"
      : "=r"(low), "=r"(high)
      : "r"(word));
  low = multiply_halves(low, factor);
  high = multiply_halves(high, factor);
}

template <int kCount>
__device__ __forceinline__ void pin_fragments(uint32_t (&a)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+r"(a[i]));
}

// Sixteen values of k of a warp's 16 tokens are 16 bytes of a row in FP8, 32 in BF16.
template <class Rows>
struct Fragments;

template <>
struct Fragments<E4m3Rows> {
  uint32_t w[4];  // of the next batch

  __device__ __forceinline__ explicit Fragments(uint32_t /*zero*/) {}

  // Batch i of the keys of a slot: dimensions 32 i ... 32 i + 31. Within 16 dimensions, lane c's bytes 4 c ... 4 c + 3 stand for the
  // places 2c, 2c + 1, 2c + 8, 2c + 9 of the product; the queries are stored in the same order.
  __device__ __forceinline__ void load_keys(uint32_t slot, int i) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    load_matrix_x4(slot + (lane & 15) * E4m3Rows::kPitch + (lane >> 4) * 16 + i * 32, w);
  }
  __device__ __forceinline__ void keys(uint32_t (&a)[8], const uint32_t (&factor)[2]) const {
    widen(w[0], factor[0], a[0], a[2]);
    widen(w[1], factor[1], a[1], a[3]);
    widen(w[2], factor[0], a[4], a[6]);
    widen(w[3], factor[1], a[5], a[7]);
  }
  // Values: 16 dimensions from `dim` on and 16 from `dim` + 64 on, of all tokens of a slot. Row g of a product is dimension 2 g, row
  // g + 8 dimension 2 g + 1.
  __device__ __forceinline__ void load_values(uint32_t slot, int dim) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    load_matrix_transposed_x4(slot + (lane & 15) * E4m3Rows::kPitch + (lane >> 4) * 64 + dim, w);
  }
  // factor: of tokens 2c, 2c + 1 and of tokens 2c + 8, 2c + 9.
  __device__ __forceinline__ void values(uint32_t (&a)[8], const uint32_t (&factor)[2]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t sorted = __byte_perm(w[i], 0, 0x3120);
      widen(sorted, factor[i & 1], a[(i >> 1) * 4 + (i & 1) * 2], a[(i >> 1) * 4 + (i & 1) * 2 + 1]);
    }
  }
};

template <>
struct Fragments<Bf16Rows> {
  uint32_t w[2][4];
  uint32_t zero;  // unknown to the compiler: a plain copy it would remove, and then load into registers that a product still reads

  __device__ __forceinline__ explicit Fragments(uint32_t z) : zero(z) {}
  __device__ __forceinline__ void load_keys(uint32_t slot, int i) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
    for (int t = 0; t < 2; ++t) load_matrix_x4(slot + (lane & 15) * Bf16Rows::kPitch + (lane >> 4) * 16 + i * 64 + t * 32, w[t]);
  }
  __device__ __forceinline__ void copy(uint32_t (&a)[8]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) a[i] = w[i >> 2][i & 3] ^ zero;
  }
  __device__ __forceinline__ void keys(uint32_t (&a)[8], const uint32_t (&)[2]) const { copy(a); }
  // Row g of a product is dimension g, row g + 8 dimension g + 8.
  __device__ __forceinline__ void load_values(uint32_t slot, int dim) {
    const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
    for (int t = 0; t < 2; ++t)
      load_matrix_transposed_x4(slot + ((lane & 7) + (lane >> 4) * 8) * Bf16Rows::kPitch + ((lane >> 3) & 1) * 16 + (dim + t * 64) * 2,
                                w[t]);
  }
  __device__ __forceinline__ void values(uint32_t (&a)[8], const uint32_t (&)[2]) const { copy(a); }
};

}  // namespace baton::cuda::mla
