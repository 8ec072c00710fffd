// The instantiations under inst/.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/kda/chunk_params.h"

namespace baton::cuda::kda {

cudaError_t start_decode_bf16(const DecodeParams& params, unsigned blocks, bool dependent, cudaStream_t stream);
cudaError_t start_decode_fp32(const DecodeParams& params, unsigned blocks, bool dependent, cudaStream_t stream);
cudaError_t start_chunk_prepare(const ChunkParams& params, unsigned blocks, bool dependent, cudaStream_t stream);
cudaError_t start_chunk_scan(const ChunkParams& params, unsigned blocks, bool dependent, cudaStream_t stream);

}  // namespace baton::cuda::kda
