// The ops of ops/kda.h on a stream. What a backend's OpTable entries call; kept apart from launch.h, which nvcc compiles.
#pragma once

#include <cuda_runtime.h>

#include "ops/kda.h"

namespace baton::cuda::kda {

// Params that config.h supports. Sequences of at most 8 rows run row by row (decode), longer ones that advance in the chunked form whatever
// params.chunked says; verified rows are at most 8. The workspace is aligned to 256.
int64_t workspace_bytes(const ops::KdaParams& params);
cudaError_t run(const ops::KdaParams& params, void* workspace, bool dependent, cudaStream_t stream);
// Folds of all sequences, and the rows of those that have at most 8.
cudaError_t run_short(const ops::KdaParams& params, bool dependent, cudaStream_t stream);
cudaError_t run(const ops::KdaFoldParams& params, bool dependent, cudaStream_t stream);

}  // namespace baton::cuda::kda
