#include "ops/cuda/moe/expert_mlp.cuh"

namespace baton::cuda::moe {
cudaError_t start_mlp_prefill_pair(const MlpParams& params, bool dependent, cudaStream_t stream) {
  return start_mlp<128, 4, 2, true>(params, dependent, stream);
}
}  // namespace baton::cuda::moe
