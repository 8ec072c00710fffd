#include "ops/cuda/moe/expert_mlp.cuh"

namespace baton::cuda::moe {
cudaError_t start_mlp_prefill_narrow(const MlpParams& params, bool dependent, cudaStream_t stream) {
  return start_mlp<96, 4, 2>(params, dependent, stream);
}
}  // namespace baton::cuda::moe
