#include "ops/cuda/moe/expert_mlp.cuh"

namespace baton::cuda::moe {
cudaError_t start_mlp_prefill(const MlpParams& params, bool dependent, cudaStream_t stream) {
  return start_mlp<128, 4, true>(params, dependent, stream);
}
}  // namespace baton::cuda::moe
