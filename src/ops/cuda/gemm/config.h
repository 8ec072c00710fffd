// Problem to configuration of the dense products. Pure: no CUDA, tested on any machine.
#pragma once

#include <cstdint>

namespace baton::cuda::gemm {

// Instantiations of the kernel: rows x columns of a block's tile.
enum class Variant : uint8_t {
  kFew,   // 64 x 128, two blocks a multiprocessor
  kSome,  // 128 x 128, two blocks a multiprocessor; BF16 only
  kMany   // 128 x 256 (FP8: 128 x 128), one block
};

struct Tile {
  int32_t rows;
  int32_t columns;  // of weights; a gated tile has half of them from each matrix
};

constexpr Tile tile_of(Variant v, bool fp8) {
  return v == Variant::kFew ? Tile{64, 128} : v == Variant::kSome || fp8 ? Tile{128, 128} : Tile{128, 256};
}

// Columns of each matrix that a tile takes are counted per matrix: `columns` are those of all matrices of the launch together.
// The order of every sum is the same in all variants, so that a row's bits do not depend on how many rows there are.
Variant configure(int64_t rows, int64_t columns, bool fp8, int multiprocessors);

// Tile `index` of a launch: column tiles walk in groups of 16 row tiles, so that what runs at once shares rows and weights in L2.
struct Place {
  int32_t member;
  int32_t row;
  int32_t column;
};

#ifdef __CUDACC__
__host__ __device__
#endif
    inline Place
    place_of(int32_t index, int32_t row_tiles, int32_t column_tiles) {
  constexpr int32_t kGroup = 16;
  const int32_t each = row_tiles * column_tiles;
  const int32_t rest = index % each;
  const int32_t group = rest / (kGroup * column_tiles);
  const int32_t rows = row_tiles - group * kGroup < kGroup ? row_tiles - group * kGroup : kGroup;
  const int32_t inside = rest - group * kGroup * column_tiles;
  return {index / each, group * kGroup + inside % rows, inside / rows};
}

}  // namespace baton::cuda::gemm
