#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/mla_sparse/prefill.cuh"
#include "ops/cuda/mla_sparse/start.h"

namespace baton::cuda::mla {
cudaError_t start_attend_prefill(const AttendParams& params, unsigned blocks, bool dependent, cudaStream_t stream) {
  static const cudaError_t prepared = allow_shared(attend_prefill, sizeof(PrefillShared));
  if (prepared != cudaSuccess) return prepared;
  return launch(attend_prefill, blocks, kAttendThreads, sizeof(PrefillShared), 1, dependent, stream, params);
}
}  // namespace baton::cuda::mla
