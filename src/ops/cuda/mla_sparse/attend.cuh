// Sparse latent attention of one row (64 heads of it, or one split of its tokens) by one block. DESIGN.md: schedule, memory map, floors.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/mla_sparse/attend_consumer.cuh"
#include "ops/cuda/mla_sparse/attend_producer.cuh"
#include "ops/cuda/mla_sparse/attend_shared.cuh"

namespace baton::cuda::mla {

template <class Rows>
__global__ void __launch_bounds__(kAttendThreads, 1) attend(const __grid_constant__ AttendParams p) {
  extern __shared__ __align__(1024) uint8_t raw[];
  auto& shared = *reinterpret_cast<AttendShared<Rows>*>(raw);
  if (threadIdx.x == 0) {
    if ((shared_address(raw) & 1023U) != 0) __trap();
    for (int i = 0; i < Rows::kSlots; ++i) {
      shared.full[i].init(kArrivingLanes);
      shared.empty[i].init(kConsumerWarps * kArrivingLanes);
    }
    fence_barrier_init();
  }
  __syncthreads();
  allow_successor();
  wait_for_predecessor();
  const Item item = item_of_block(p);
  if (threadIdx.x >= kConsumerThreads) {
    give_registers<24>();  // 24 + 2 x 240 is all that the launch holds (3 x 168)
    produce(p, shared, item, static_cast<int>(__shfl_sync(0xFFFFFFFFU, threadIdx.x / 32, 0)) - kConsumerWarps);
  } else {
    take_registers<240>();
    const int group = static_cast<int>(__shfl_sync(0xFFFFFFFFU, threadIdx.x / 128, 0));  // uniform
    Consumer<Rows> consumer(p, shared, item, group);
    consumer.run();
  }
}

template <class Rows>
cudaError_t start_attend(const AttendParams& params, unsigned blocks, bool dependent, cudaStream_t stream) {
  constexpr size_t kShared = sizeof(AttendShared<Rows>);
  static_assert(kShared <= 232448, "shared memory of a block");
  static const cudaError_t prepared = allow_shared(attend<Rows>, kShared);
  if (prepared != cudaSuccess) return prepared;
  return launch(attend<Rows>, blocks, kAttendThreads, kShared, 1, dependent, stream, params);
}

}  // namespace baton::cuda::mla
