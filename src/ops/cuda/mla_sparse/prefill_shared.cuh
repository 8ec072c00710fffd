// Memory map of the prefill kernel (see prefill.cuh).
//
//   q[8][64 heads][128 B]          queries, K-major in the 128-byte swizzle, 64 dimensions a block; with `p` the staging of the output
//   p[2][64 heads][128 B]          weights of a tile, likewise
//   rows[2][8][64 tokens][128 B]   cache rows of two tiles: K-major for the scores, columns first for the values
#pragma once

#include "ops/cuda/device/barrier.cuh"
#include "ops/cuda/mla_sparse/attend_shared.cuh"

namespace baton::cuda::mla {

inline constexpr int kPrefillTokens = 64;  // of a tile
inline constexpr int kBlockBytes = kPrefillTokens * 128;

struct PrefillShared {
  uint8_t q[kHeads * kDim * 2];
  uint8_t p[2][kHeads * 128];
  uint8_t rows[2][kDim / 64][kBlockBytes];
  float head_factor[kHeads];
  float reference[2][kHeads];  // that the weights of a tile are relative to
  float sum[2][kHeads];        // of the weights of even and of odd tiles
  Barrier full[2];             // rows of a tile are there
  Barrier empty[2];            // nobody needs them and their weights any more
  Barrier ready[2];            // weights and reference of a tile are there
};
static_assert(sizeof(PrefillShared) <= 232448, "shared memory of a block");

}  // namespace baton::cuda::mla
