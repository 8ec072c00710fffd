#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/kda/chunk_scan.cuh"
#include "ops/cuda/kda/start.h"

namespace baton::cuda::kda {
cudaError_t start_chunk_scan(const ChunkParams& params, unsigned blocks, bool dependent, cudaStream_t stream) {
  static const cudaError_t prepared = allow_shared(chunk_scan, sizeof(ScanShared));
  if (prepared != cudaSuccess) return prepared;
  return launch(chunk_scan, blocks, kScanThreads, sizeof(ScanShared), 2, dependent, stream, params);
}
}  // namespace baton::cuda::kda
