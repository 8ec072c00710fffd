// Fragments from shared memory into registers: the other direction of the stores in matrix.cuh.
//
// Lane 8 i + r names row r of matrix i (16 bytes, aligned); lane l = 4 g + c receives the 4 bytes c of row g of every matrix. Transposed,
// it receives the 16-bit elements [2c][g] and [2c + 1][g]: two rows, one column. Eight rows that start in different banks (a pitch that is
// an odd multiple of 16 bytes) are read without conflicts.
#pragma once

#include <cstdint>

namespace baton::cuda {

__device__ __forceinline__ void load_matrix_x4(uint32_t row_address, uint32_t (&w)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
               : "r"(row_address)
               : "memory");
}
__device__ __forceinline__ void load_matrix_transposed_x4(uint32_t row_address, uint32_t (&w)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
               : "r"(row_address)
               : "memory");
}

}  // namespace baton::cuda
