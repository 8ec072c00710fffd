#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/kda/chunk_prepare.cuh"
#include "ops/cuda/kda/start.h"

namespace baton::cuda::kda {
cudaError_t start_chunk_prepare(const ChunkParams& params, unsigned blocks, bool dependent, cudaStream_t stream) {
  static const cudaError_t prepared = allow_shared(chunk_prepare, sizeof(PrepareShared));
  if (prepared != cudaSuccess) return prepared;
  return launch(chunk_prepare, blocks, kPrepareThreads, sizeof(PrepareShared), 1, dependent, stream, params);
}
}  // namespace baton::cuda::kda
