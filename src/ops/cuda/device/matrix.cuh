// Fragments between registers and shared memory, and the warp-wide mma for small products.
#pragma once

#include <cstdint>

#include "ops/cuda/device/barrier.cuh"

namespace baton::cuda {

// Stores four 8 x 8 matrices of 16-bit elements, transposed: lane 8 i + r names the row r of matrix i as it lies in memory (16 bytes); in
// registers lane l holds the elements [l / 4][2 (l % 4)] and [..][.. + 1] of the untransposed matrix.
__device__ __forceinline__ void store_matrix_transposed_x4(uint32_t row_address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}
__device__ __forceinline__ void store_matrix_transposed_x2(uint32_t row_address, uint32_t a, uint32_t b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row_address), "r"(a), "r"(b) : "memory");
}
__device__ __forceinline__ void store_matrix_transposed_x1(uint32_t row_address, uint32_t a) {
  asm volatile("stmatrix.sync.aligned.m8n8.x1.trans.shared.b16 [%0], {%1};" ::"r"(row_address), "r"(a) : "memory");
}

// The same without turning: register i of lane l is the element pair [l / 4][2 (l % 4)] of matrix i.
__device__ __forceinline__ void store_matrix_x4(uint32_t row_address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

// d += a b, m16n8k16. Lane l = 4 g + c holds a[g][2c,+1], a[g+8][2c,+1], a[g][2c+8,+9], a[g+8][2c+8,+9]; b[2c,+1][g], b[2c+8,+9][g];
// d[g][2c], d[g][2c+1], d[g+8][2c], d[g+8][2c+1]. Any permutation of k that a and b share leaves the product unchanged.
__device__ __forceinline__ void mma_bf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// The same with k = 8: a[g][2c,+1], a[g+8][2c,+1]; b[2c,+1][g].
__device__ __forceinline__ void mma_bf16_k8(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a0), "r"(a1), "r"(b0));
}

}  // namespace baton::cuda
