#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/kda/decode_fp32.cuh"
#include "ops/cuda/kda/start.h"

namespace baton::cuda::kda {
cudaError_t start_decode_fp32(const DecodeParams& params, unsigned blocks, bool dependent, cudaStream_t stream) {
  static const cudaError_t prepared = allow_shared(decode_fp32, sizeof(Fp32Shared));
  if (prepared != cudaSuccess) return prepared;
  return launch(decode_fp32, blocks, kFp32Threads, sizeof(Fp32Shared), 1, dependent, stream, params);
}
}  // namespace baton::cuda::kda
