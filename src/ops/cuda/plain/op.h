// What the bodies of CUDA ops share: the stream behind ops::Context, and the one place where launch errors end the process.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/stream.h"
#include "ops/op_table.h"

namespace baton::cuda::plain {

inline cudaStream_t stream(const ops::Context& context) { return stream_of(*context.executor).handle; }

// After the launches of an op.
inline void launched(const ops::Context& context, cudaError_t e, const char* op) {
  if (e == cudaSuccess && stream_of(*context.executor).blocking) e = cudaStreamSynchronize(stream(context));
  BATON_CHECK_MSG(e == cudaSuccess, "CUDA op {}: {}", op, cudaGetErrorString(e));
}

inline bool is_float(DType t) { return t == DType::kF32 || t == DType::kBF16; }
inline bool is_weight(DType t) { return is_float(t) || t == DType::kF8E4M3; }
inline unsigned blocks_of(int64_t n) { return static_cast<unsigned>(n); }

}  // namespace baton::cuda::plain
