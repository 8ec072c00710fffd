// The order in which the CPU keeps a weight W[n, k]: blocks of 16 rows, k outermost inside a block, so that a product streams each block
// once from front to back. Rows are padded with zeros to a multiple of 16; k to a multiple of 32 except for kF32.
//
//   kF32:    [n / 16][k][16]
//   kBF16:   [n / 16][k / 2][16][2], pairs along k innermost: the operand of AMX TDPBF16PS and AVX-512 VDPBF16PS. 32 k's of a block are one
//            AMX tile of 1 KB.
//   kF8E4M3: the same, with two consecutive k-pairs interleaved 8 bytes at a time ([n / 16][k / 4][4][2][4][2]: quarter, pair, n, k), so
//            that widening by interleaving with a second register yields whole rows of the kBF16 order.
#pragma once

#include <cstdint>

#include "tensor/number.h"

namespace baton::cpu {

inline constexpr int64_t kBlockColumns = 16;  // outputs per block: rows of W
inline constexpr int64_t kTileDepth = 32;     // k's per AMX tile

constexpr int64_t padded_depth(DType dtype, int64_t k) { return dtype == DType::kF32 ? k : (k + kTileDepth - 1) / kTileDepth * kTileDepth; }
constexpr int64_t block_count(int64_t n) { return (n + kBlockColumns - 1) / kBlockColumns; }
constexpr int64_t block_bytes(DType dtype, int64_t k) { return padded_depth(dtype, k) * kBlockColumns * dtype_bytes(dtype); }
constexpr int64_t packed_bytes(DType dtype, int64_t n, int64_t k) { return block_count(n) * block_bytes(dtype, k); }

// Element (n, k) of a block, counted in elements from its start.
constexpr int64_t packed_index(DType dtype, int64_t n, int64_t k) {
  if (dtype == DType::kF32) return k * 16 + n;
  if (dtype == DType::kBF16) return k / 2 * 32 + n * 2 + k % 2;
  return k / 4 * 64 + n / 4 * 16 + k / 2 % 2 * 8 + n % 4 * 2 + k % 2;
}

}  // namespace baton::cpu
