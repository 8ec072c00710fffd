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

// Params that config.h supports. Sequences of at most 8 rows run row by row (decode), longer ones that advance in the chunked form whatever
// params.chunked says; verified rows are at most 8. The workspace is aligned to 256.
int64_t workspace_bytes(const ops::KdaParams& params);
cudaError_t run(const ops::KdaParams& params, const FoldSource& fold, void* workspace, bool dependent, cudaStream_t stream);
cudaError_t run(const ops::KdaFoldParams& params, bool dependent, cudaStream_t stream);

}  // namespace baton::cuda::kda
