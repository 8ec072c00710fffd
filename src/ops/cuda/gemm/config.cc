#include "ops/cuda/gemm/config.h"

namespace baton::cuda::gemm {

Variant configure(int64_t rows, int64_t columns, bool fp8, int multiprocessors) {
  if (rows <= 64) return Variant::kFew;
  if (fp8) return Variant::kMany;
  const Tile t = tile_of(Variant::kMany, fp8);
  const int64_t tiles = ((rows + t.rows - 1) / t.rows) * ((columns + t.columns - 1) / t.columns);
  return tiles * 10 >= int64_t{multiprocessors} * 9 ? Variant::kMany : Variant::kSome;  // a wave of large tiles, or smaller ones
}

}  // namespace baton::cuda::gemm
