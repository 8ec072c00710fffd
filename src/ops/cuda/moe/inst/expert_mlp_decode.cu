#include "ops/cuda/moe/expert_mlp.cuh"

namespace baton::cuda::moe {
cudaError_t start_mlp_decode(const MlpParams& params, bool dependent, cudaStream_t stream) {
  return start_mlp<64, 5, false>(params, dependent, stream);
}
}  // namespace baton::cuda::moe
