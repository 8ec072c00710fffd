#include "ops/cuda/kda/launch.h"

#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/kda/start.h"

namespace baton::cuda::kda {

cudaError_t decode(const DecodeParams& params, bool dependent, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(params.sequence_count * params.heads);
  DecodeParams p = params;
  if (p.prefetch_blocks < 0) p.prefetch_blocks = multiprocessors();
  return p.state_bf16 ? start_decode_bf16(p, blocks, dependent, stream) : start_decode_fp32(p, blocks, dependent, stream);
}

}  // namespace baton::cuda::kda
