// The producer: one warp walks the work list and keeps the copy engine busy across tiles, experts and both phases.
//
// Weights depend on nothing but the work list, so the stages of the first tile are requested before the predecessor is waited for. Rows of
// a down tile wait until every gate-up tile of the same row block is stored; tiles are handed out in order, so the wait is for running
// blocks only. The copies of a step are issued by different lanes at once: one thread alone needs about 0.2 us for every copy and barrier.
#pragma once

#include "ops/cuda/device/bulk_copy.cuh"
#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/moe/expert_mlp_params.h"
#include "ops/cuda/moe/mlp_shared.cuh"

namespace baton::cuda::moe {

template <int kRows, int kStages, bool kRowsFirst>
class Producer {
 public:
  __device__ Producer(const MlpParams& params, MlpShared<kRows, kStages>& memory)
      : p(params), shared(memory), lane(static_cast<int>(threadIdx.x % 32)) {
    if (lane <= kWeight1) {
      policy = kRowsFirst ? policy_evict_normal() : policy_evict_first();  // with many rows, several tiles read the same weights
    } else {
      policy = policy_evict_last();
    }
  }

  __device__ __forceinline__ void run() {
    const auto* units = reinterpret_cast<const int4*>(p.units);
    const int gate_up_tiles = p.inner_blocks;  // of a unit
    const int down_tiles = p.width_blocks / 2;
    const int unit_count = load_volatile(reinterpret_cast<const int4*>(p.control)).x;
    const int first_down = (p.phases & 1) != 0 ? unit_count * gate_up_tiles : 0;
    const int total = first_down + ((p.phases & 2) != 0 ? unit_count * down_tiles : 0);
    const auto unit_of = [&](int t) { return t < first_down ? t / gate_up_tiles : (t - first_down) / down_tiles; };

    int t = static_cast<int>(blockIdx.x);  // the first tile is fixed, the others are handed out
    int4 raw = t < total ? load_volatile(units + unit_of(t)) : make_int4(0, 0, 0, 0);
    bool first = true;
    while (t < total) {
      int next = 0;
      if (lane == 0) next = static_cast<int>(gridDim.x + atomicAdd(p.control + 1, 1U));
      const bool gate_up = t < first_down;
      const Unit unit{raw.x, raw.y, raw.z, raw.w};
      const int block = gate_up ? t % gate_up_tiles : (t - first_down) % down_tiles;
      const int flag = unit_of(t);
      const int steps = gate_up ? p.width_blocks : p.inner_blocks;
      announce_tile(unit, gate_up, block, steps, flag);
      aim(unit, gate_up, block);
      const uint32_t step_bytes = 2 * kBlockBytes + static_cast<uint32_t>(unit.rows) * (kBlock + 4);

      int requested = 0;
      if (first) {
        RingCursor ahead = at;
        for (; requested < kStages && requested < steps; ++requested) {
          arm(ahead, step_bytes);
          copy(requested, ahead, kWeight0, kWeight1);
          ahead.advance(kStages);
        }
        wait_for_predecessor();
        first = false;
      }
      for (int step = 0; step < steps; ++step) {
        const bool weights = step >= requested;
        if (weights) arm(at, step_bytes);
        if (step == 0 && !gate_up) {
          if (weights) copy(0, at, kWeight0, kWeight1);
          if (p.phases == 3) wait_ready(flag, unit.rows);
          copy(0, at, kRowBytes, kRowScales);
        } else {
          copy(step, at, weights ? kWeight0 : kRowBytes, kRowScales);
        }
        at.advance(kStages);
        if (step == 1) {  // steps >= 4: the next tile is known by now and its unit arrives long before it is needed
          next = __shfl_sync(0xFFFFFFFFU, next, 0);
          if (next < total) raw = load_volatile(units + unit_of(next));
        }
      }
      t = next;
    }
    if (first) wait_for_predecessor();
    shared.tile_empty[ring.index].wait(ring.parity ^ 1);
    if (lane == 0) {
      shared.tiles[ring.index].kind = kStop;
      shared.tile_full[ring.index].arrive();
    }
  }

 private:
  // What each lane copies in a step.
  enum Role { kWeight0 = 0, kWeight1 = 1, kRowBytes = 2, kRowScales = 3 };

  // Publishes the tile to the consumers and requests its weight scales.
  __device__ __forceinline__ void announce_tile(const Unit& unit, bool gate_up, int block, int steps, int flag) {
    shared.tile_empty[ring.index].wait(ring.parity ^ 1);
    Tile& tile = shared.tiles[ring.index];
    Barrier& full = shared.tile_full[ring.index];
    const uint32_t scale_bytes = static_cast<uint32_t>(steps) * 4;
    if (lane == 0) {
      tile.kind = gate_up ? kGateUp : kDown;
      tile.rows = unit.rows;
      tile.slot = unit.slot;
      tile.block = block;
      tile.steps = steps;
      tile.flag = flag;
      full.expect(2 * scale_bytes);
    }
    __syncwarp();
    if (lane < 2) {
      const int64_t e = unit.expert;
      const float* scale;
      if (gate_up) {
        scale = (lane == 0 ? p.gate_scale + e * p.gate_scale_stride : p.up_scale + e * p.up_scale_stride) + block * p.width_blocks;
      } else {
        scale = p.down_scale + e * p.down_scale_stride + (2 * block + lane) * p.inner_blocks;
      }
      bulk_load(tile.weight_scale[lane], scale, scale_bytes, full);
    }
    ring.advance(kTileRing);
  }

  // Sets this lane's source, stride and target for the tile.
  __device__ __forceinline__ void aim(const Unit& unit, bool gate_up, int block) {
    const int64_t e = unit.expert;
    if (lane <= kWeight1) {
      if (gate_up) {
        source =
            (lane == 0 ? p.gate + e * p.gate_stride : p.up + e * p.up_stride) + static_cast<int64_t>(block) * p.width_blocks * kBlockBytes;
      } else {
        source = p.down + e * p.down_stride + static_cast<int64_t>(2 * block + lane) * p.inner_blocks * kBlockBytes;
      }
      stride = kBlockBytes;
      target = shared.weights[0][lane];
      target_stride = sizeof(shared.weights[0]);
      bytes = kBlockBytes;
    } else if (lane == kRowBytes) {
      source = (gate_up ? p.x : p.h) + static_cast<int64_t>(unit.slot) * kBlock;
      stride = p.slots * kBlock;
      target = shared.rows[0];
      target_stride = sizeof(shared.rows[0]);
      bytes = static_cast<uint32_t>(unit.rows) * kBlock;
    } else if (lane == kRowScales) {
      source = reinterpret_cast<const uint8_t*>((gate_up ? p.x_scale : p.h_scale) + unit.slot);
      stride = p.slots * 4;
      target = reinterpret_cast<uint8_t*>(shared.row_scales[0]);
      target_stride = sizeof(shared.row_scales[0]);
      bytes = static_cast<uint32_t>(unit.rows) * 4;
    }
  }

  // Waits until the stage is free and announces its bytes.
  __device__ __forceinline__ void arm(const RingCursor& stage, uint32_t step_bytes) {
    shared.empty[stage.index].wait(stage.parity ^ 1);
    if (lane == 0) shared.full[stage.index].expect(step_bytes);
    __syncwarp();
  }

  __device__ __forceinline__ void copy(int step, const RingCursor& stage, int first_role, int last_role) {
    if (lane < first_role || lane > last_role) return;
    const uint8_t* from = source + step * stride;
    uint8_t* to = target + stage.index * target_stride;
    Barrier& full = shared.full[stage.index];
    bulk_load(to, from, bytes, full, policy);
  }

  __device__ __forceinline__ void wait_ready(int32_t flag, int rows) const {
    const uint32_t parts = kRowsFirst && rows > 64 ? 2 : 1;  // of a tile: warpgroups that store one
    while (load_acquire(p.ready + flag) < static_cast<uint32_t>(p.inner_blocks) * parts) {
    }
    fence_async_global();  // the flag was read by ordinary means, the rows are read by the copy engine
  }

  const MlpParams& p;
  MlpShared<kRows, kStages>& shared;
  const int lane;
  uint64_t policy;
  RingCursor at;
  RingCursor ring;
  const uint8_t* source = nullptr;
  int64_t stride = 0;
  uint8_t* target = nullptr;
  uint32_t target_stride = 0;
  uint32_t bytes = 0;
};

}  // namespace baton::cuda::moe
