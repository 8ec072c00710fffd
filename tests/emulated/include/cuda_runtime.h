// Enough of CUDA for device code, and for what launches it, to run on a CPU: see emulated/simt.h.
#pragma once

#include "emulated/simt.h"

enum cudaError_t { cudaSuccess, cudaErrorInvalidValue };
using cudaStream_t = void*;
inline const char* cudaGetErrorString(cudaError_t) { return "an error"; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t) {
  std::memset(p, value, bytes);
  return cudaSuccess;
}
