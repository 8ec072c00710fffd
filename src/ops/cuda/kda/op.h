// The ops of ops/kda.h on a stream. What a backend's OpTable entries call; kept apart from launch.h, which nvcc compiles.
#pragma once

#include <cuda_runtime.h>

#include "ops/kda.h"

namespace baton::cuda::kda {

// Ring rows to commit before the rows of a launch.
struct FoldSource {
  const int32_t* counts = nullptr;  // [sequence_count], or null:
  int64_t slot_offset = -1;         // where in a slot its int32 count lies; -1: nothing is folded
};

// Params that config.h supports. See launch.h.
cudaError_t run(const ops::KdaParams& params, const FoldSource& fold, bool dependent, cudaStream_t stream);
cudaError_t run(const ops::KdaFoldParams& params, bool dependent, cudaStream_t stream);

}  // namespace baton::cuda::kda
