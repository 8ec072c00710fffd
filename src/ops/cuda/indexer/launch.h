// The indexer's choice of pools: ops::IndexerSelectParams on the device. All pointers are device memory; the launch allocates nothing,
// never waits, and reads positions and page tables on the device, so that one captured graph serves every batch of the same number of rows.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/indexer/config.h"

namespace baton::cuda::indexer {

// `workspace`: config.workspace_bytes, aligned to 16; afterwards it holds the scores, [rows, config.score_stride], where a row has more
// closed pools than it may choose. Params must be supported().
cudaError_t select(const ops::IndexerSelectParams& params, const Config& config, void* workspace, bool dependent_launch,
                   cudaStream_t stream);

}  // namespace baton::cuda::indexer
