// Dense products as ops: gemm, gemm_batched, gated_mlp on tensor cores, for weights as they are stored (row-major).
//
// Launches are asynchronous and allocate nothing. Tensor maps hold addresses: a captured graph serves the same views alone.
#pragma once

#include <cuda_runtime.h>

#include "ops/gemm.h"

namespace baton::cuda::gemm {

// Rows in bf16; weights in bf16, or in e4m3 whose input is rounded (kE4m3Block) and whose k is a multiple of 128.
bool supported(const ops::GemmParams& p);
int64_t workspace_bytes(const ops::GemmParams& p);
cudaError_t run(const ops::GemmParams& p, void* workspace, cudaStream_t stream);

// Weights in bf16, at equal distances, k a multiple of 64.
bool supported(const ops::GemmBatchedParams& p);
cudaError_t run(const ops::GemmBatchedParams& p, cudaStream_t stream);

// Weights in e4m3, input rounded.
bool supported(const ops::GatedMlpParams& p);
int64_t workspace_bytes(const ops::GatedMlpParams& p);
cudaError_t run(const ops::GatedMlpParams& p, void* workspace, cudaStream_t stream);

}  // namespace baton::cuda::gemm
