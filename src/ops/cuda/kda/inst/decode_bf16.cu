#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/kda/decode_bf16.cuh"
#include "ops/cuda/kda/start.h"

namespace baton::cuda::kda {
cudaError_t start_decode_bf16(const DecodeParams& params, unsigned blocks, bool dependent, cudaStream_t stream) {
  static const cudaError_t prepared = allow_shared(decode_bf16<4>, sizeof(Bf16Shared));
  if (prepared != cudaSuccess) return prepared;
  return launch(decode_bf16<4>, blocks, kBf16Threads, sizeof(Bf16Shared), 1, dependent, stream, params);
}
}  // namespace baton::cuda::kda
