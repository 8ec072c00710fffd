// Sparse latent attention, absorbed form: ops::MlaAttendParams on the device. All pointers are device memory; the launch allocates
// nothing, never waits, and reads positions, selections and page tables on the device, so that one captured graph serves every batch of
// the same number of rows.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/mla_sparse/config.h"

namespace baton::cuda::mla {

// `workspace`: config.workspace_bytes, aligned to 16, may be null where that is 0. Params must be supported().
cudaError_t attend(const ops::MlaAttendParams& params, const Config& config, void* workspace, bool dependent_launch, cudaStream_t stream);

}  // namespace baton::cuda::mla
