// mHC on the device: ops::MhcMixParams, MhcExpandParams and MhcFinalParams. All pointers are device memory; nothing is allocated, nothing
// waits. Params must be supported() (config.h).
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/mhc/config.h"

namespace baton::cuda::mhc {

// Where x is also wanted as the input of an FP8 product (ops::ActivationQuant::kE4m3Block): e4m3 [rows, d] and scales [rows, d / 128].
struct QuantisedRows {
  uint8_t* codes = nullptr;
  float* scales = nullptr;
};

// With dependent launches, fn must have been written two kernels earlier or more: it is read before the predecessor is waited for.
cudaError_t mix(const ops::MhcMixParams& params, const QuantisedRows& quantised, bool dependent_launch, cudaStream_t stream);
cudaError_t expand(const ops::MhcExpandParams& params, bool dependent_launch, cudaStream_t stream);
cudaError_t final(const ops::MhcFinalParams& params, bool dependent_launch, cudaStream_t stream);

}  // namespace baton::cuda::mhc
