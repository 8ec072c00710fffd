// Both expert GEMMs of a layer in one persistent kernel: first all gate-up tiles (with SwiGLU and quantisation), then all down tiles.
// DESIGN.md: schedule, memory map, floors.
//
// kRowsFirst: the rows are the M side of the products (many rows an expert); otherwise the weights are (few rows).
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/moe/mlp_producer.cuh"
#include "ops/cuda/moe/mlp_row_consumer.cuh"
#include "ops/cuda/moe/mlp_shared.cuh"
#include "ops/cuda/moe/mlp_weight_consumer.cuh"

namespace baton::cuda::moe {

template <int kRows, int kStages, bool kRowsFirst>
__global__ void __launch_bounds__(kMlpThreads, 1) expert_mlp(const __grid_constant__ MlpParams p) {
  extern __shared__ __align__(1024) uint8_t raw[];
  auto& shared = *reinterpret_cast<MlpShared<kRows, kStages>*>(raw);
  if (threadIdx.x == 0) {
    if ((shared_address(raw) & 1023U) != 0) __trap();
    for (int i = 0; i < kStages; ++i) {
      shared.full[i].init(1);
      shared.empty[i].init(kConsumerWarps * kArrivingLanes);
    }
    for (int i = 0; i < kTileRing; ++i) {
      shared.tile_full[i].init(1);
      shared.tile_empty[i].init(kConsumerWarps * kArrivingLanes);
    }
    fence_barrier_init();
  }
  __syncthreads();
  allow_successor();

  if (threadIdx.x < 128) {
    give_registers<56>();
    if (threadIdx.x < 32) {
      Producer<kRows, kStages, kRowsFirst> producer(p, shared);
      producer.run();
    }
  } else {
    take_registers<224>();
    const int group =
        static_cast<int>(__shfl_sync(0xFFFFFFFFU, threadIdx.x / 128, 0)) - 1;  // uniform: descriptors stay in uniform registers
    if constexpr (kRowsFirst) {
      RowConsumer<kRows, kStages> consumer(p, shared, group);
      consumer.run();
    } else {
      WeightConsumer<kRows, kStages> consumer(p, shared, group);
      consumer.run();
    }
  }
}

template <int kRows, int kStages, bool kRowsFirst>
cudaError_t start_mlp(const MlpParams& params, bool dependent, cudaStream_t stream) {
  constexpr size_t kShared = sizeof(MlpShared<kRows, kStages>);
  static_assert(kShared <= 232448, "shared memory of a block");
  static const cudaError_t prepared = allow_shared(expert_mlp<kRows, kStages, kRowsFirst>, kShared);
  if (prepared != cudaSuccess) return prepared;
  return launch(expert_mlp<kRows, kStages, kRowsFirst>, static_cast<unsigned>(multiprocessors()), kMlpThreads, kShared, 1, dependent,
                stream, params);
}

}  // namespace baton::cuda::moe
