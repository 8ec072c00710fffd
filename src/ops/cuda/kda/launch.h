// KDA on the device. All launches are asynchronous, allocate nothing and read counts and slots on the device: one captured graph serves
// every acceptance.
//
// With dependent launch a kernel reads sequences, slot ids, fold counts, slots (state, window, ring) and weights before it waits for its
// predecessor: they must have been written two kernels earlier or more. Inputs and gate rows may be the predecessor's output.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/kda/decode_params.h"

namespace baton::cuda::kda {

// Rows of sequences with at most 8 rows: fold, then verify or advance, in one pass over the state. With FP32 state every row's result has
// the bits of one-token launches, in a fold as well. Sequences with more rows are left alone. Verified rows are recorded in ring rows 0 ...
// after the fold has read them. Counts are the caller's to reset. With `sequences` null this is the fold alone: materialise.
cudaError_t decode(const DecodeParams& params, bool dependent, cudaStream_t stream);

}  // namespace baton::cuda::kda
