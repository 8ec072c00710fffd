// How the expert path keeps its matrices in device memory: everything that a tile needs per step of k is one contiguous run, so that the
// copy engine moves it without tensor maps, and it lies there in the 128-byte swizzle that wgmma reads.
//
// Slot panels (activations): slots are rows sorted by expert; every expert begins at a multiple of 8. Panel p holds 128 bytes of every
// slot: 128 e4m3 columns of x and h, or 64 bf16 columns of y. The tile "slots s ... s + t, panel p" is t * 128 contiguous bytes.
// Scales of x and h: float [panel][slot].
//
// Weight blocks: 128 x 128 e4m3 = 16 KB each, [row block][column block] row-major; n and k are multiples of 128.
// Gate and up rows are permuted inside groups of 16 (weight_source_row): a thread then holds two neighbouring outputs and writes them as
// one unit.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define BATON_HOST_DEVICE __host__ __device__ __forceinline__
#else
#define BATON_HOST_DEVICE inline
#endif

namespace baton::cuda::moe {

inline constexpr int kBlock = 128;         // quantisation block and bytes of a panel row
inline constexpr int kBlockBytes = 16384;  // one weight block
inline constexpr int kSlotGroup = 8;       // an expert's slots are padded to this

// Byte offset of a 16-byte chunk (0 ... 7) of a slot in a panel; `slots` is the capacity, a multiple of 8.
BATON_HOST_DEVICE int64_t panel_offset(int64_t slots, int64_t panel, int64_t slot, int chunk) {
  return (panel * slots + slot) * kBlock + ((chunk ^ static_cast<int>(slot & 7)) << 4);
}

// Byte offset of element (row, col) of a packed weight matrix.
BATON_HOST_DEVICE int64_t weight_offset(int64_t col_blocks, int64_t row, int64_t col) {
  const int64_t block = (row / kBlock) * col_blocks + col / kBlock;
  const int r = static_cast<int>(row % kBlock);
  const int c = static_cast<int>(col % kBlock);
  return block * kBlockBytes + r * kBlock + (((c >> 4) ^ (r & 7)) << 4) + (c & 15);
}

// Row of the checkpoint's gate or up matrix that is stored as row r.
BATON_HOST_DEVICE int64_t weight_source_row(int64_t r) { return (r & ~int64_t{15}) + 2 * (r & 7) + ((r >> 3) & 1); }

}  // namespace baton::cuda::moe
