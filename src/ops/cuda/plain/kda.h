// The plain body of `kda`, for tuned kernels that leave long sequences to it.
#pragma once

#include <cuda_runtime.h>

#include "ops/kda.h"

namespace baton::cuda::plain {

// The rows of sequences that have at least `least_rows`, behind what was folded already.
cudaError_t run_folded_rows(const ops::KdaParams& params, int32_t least_rows, cudaStream_t stream);

}  // namespace baton::cuda::plain
