// Starts of the attention kernel, one instantiation each (inst/).
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/mla_sparse/params.h"

namespace baton::cuda::mla {

cudaError_t start_attend_e4m3(const AttendParams& params, unsigned blocks, bool dependent, cudaStream_t stream);
cudaError_t start_attend_bf16(const AttendParams& params, unsigned blocks, bool dependent, cudaStream_t stream);
cudaError_t start_attend_prefill(const AttendParams& params, unsigned blocks, bool dependent, cudaStream_t stream);

}  // namespace baton::cuda::mla
