#include "ops/cuda/mla_sparse/attend.cuh"
#include "ops/cuda/mla_sparse/start.h"

namespace baton::cuda::mla {
cudaError_t start_attend_bf16(const AttendParams& params, unsigned blocks, bool dependent, cudaStream_t stream) {
  return start_attend<Bf16Rows>(params, blocks, dependent, stream);
}
}  // namespace baton::cuda::mla
