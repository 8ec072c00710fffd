// What both kinds of consumers share: the rings, handing stages back, and announcing stored tiles of h.
#pragma once

#include "ops/cuda/device/bulk_copy.cuh"
#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/moe/expert_mlp_params.h"
#include "ops/cuda/moe/mlp_shared.cuh"

namespace baton::cuda::moe {

template <int kRows, int kStages>
class ConsumerBase {
 protected:
  __device__ ConsumerBase(const MlpParams& params, MlpShared<kRows, kStages>& memory, int warpgroup)
      : p(params), shared(memory), group(warpgroup), keep(policy_evict_last()) {}

  __device__ __forceinline__ bool leader() const { return threadIdx.x % 128 == 0; }

  __device__ __forceinline__ void wait_stage() const { shared.full[at.index].wait(at.parity); }
  __device__ __forceinline__ void hand_back(int stage) {
    if constexpr (kArrivingLanes == 1) __syncwarp();
    if (threadIdx.x % 32 < kArrivingLanes) shared.empty[stage].arrive();
  }
  __device__ __forceinline__ void release_stage() {
    hand_back(static_cast<int>(at.index));
    at.advance(kStages);
  }

  // Announces the h tile that this thread stored last, once its bytes have landed; called some steps later so that nobody waits for the
  // store.
  __device__ __forceinline__ void announce() {
    if (unflagged >= 0 && leader()) {
      bulk_wait<0>();
      fence_async_global();
      add_release(p.ready + unflagged, 1);
    }
    unflagged = -1;
  }

  // fn(tile) for every tile of the block.
  template <class Fn>
  __device__ __forceinline__ void each_tile(const Fn& fn) {
    RingCursor ring;
    while (true) {
      shared.tile_full[ring.index].wait(ring.parity);
      const Tile& tile = shared.tiles[ring.index];
      if (tile.kind == kStop) break;
      // The rows of a down tile may wait for the very tile that this block stored last.
      if (tile.kind == kDown) announce();
      fn(tile);
      if constexpr (kArrivingLanes == 1) __syncwarp();
      if (threadIdx.x % 32 < kArrivingLanes) shared.tile_empty[ring.index].arrive();
      ring.advance(kTileRing);
    }
    announce();
    if (leader()) bulk_wait<0>();
  }

  const MlpParams& p;
  MlpShared<kRows, kStages>& shared;
  const int group;  // warpgroup 0 or 1
  const uint64_t keep;
  RingCursor at;
  int32_t unflagged = -1;  // row block whose last h tile was stored but not announced yet
};

}  // namespace baton::cuda::moe
