#include "ops/cuda/mla_sparse/attend.cuh"
#include "ops/cuda/mla_sparse/start.h"

namespace baton::cuda::mla {
cudaError_t start_attend_e4m3(const AttendParams& params, unsigned blocks, bool dependent, cudaStream_t stream) {
  return start_attend<E4m3Rows>(params, blocks, dependent, stream);
}
}  // namespace baton::cuda::mla
