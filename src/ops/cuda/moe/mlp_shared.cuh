// Memory map of the expert MLP kernel: one block per SM uses nearly all of its shared memory.
//
//   weights[stages][2][16 KB]      two 128 x 128 blocks a step: gate and up, or two neighbours of down
//   rows[stages][rows * 128 B]     the tile's slots, one panel a step
//   staging[2][rows * 128 B]       output tiles of the two consumer warpgroups; the second half also holds the maxima of SwiGLU
//   row_scales[stages][rows]
//   tiles[2]                       what to compute and the weight scales of the whole tile
//   barriers
#pragma once

#include <cstdint>

#include "ops/cuda/device/barrier.cuh"
#include "ops/cuda/moe/layout.h"

namespace baton::cuda::moe {

inline constexpr int kTileRing = 2;
inline constexpr int kMaxSteps = 32;  // blocks of k of one tile
inline constexpr int kConsumerWarps = 8;
inline constexpr int kMlpThreads = 384;  // producer warpgroup, two consumer warpgroups

enum TileKind : int32_t { kStop = -1, kGateUp = 0, kDown = 1 };

// Every consumer thread hands a stage back itself where the race checker should see it; one a warp is enough otherwise.
#ifdef BATON_RACECHECK
inline constexpr int kArrivingLanes = 32;
#else
inline constexpr int kArrivingLanes = 1;
#endif

struct Tile {
  int32_t kind;
  int32_t rows;  // multiple of 8
  int32_t slot;
  int32_t block;  // gate-up: column block of h; down: pair of 128-column blocks of y
  int32_t steps;
  int32_t flag;  // index into `ready`
  int32_t unused[2];
  float weight_scale[2][kMaxSteps];
};

template <int kRows, int kStages>
struct MlpShared {
  uint8_t weights[kStages][2][kBlockBytes];
  uint8_t rows[kStages][kRows * kBlock];
  uint8_t staging[2][kRows * kBlock];
  float row_scales[kStages][kRows];
  Tile tiles[kTileRing];
  Barrier full[kStages];
  Barrier empty[kStages];
  Barrier tile_full[kTileRing];
  Barrier tile_empty[kTileRing];
};

}  // namespace baton::cuda::moe
