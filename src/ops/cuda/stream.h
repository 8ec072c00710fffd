// The execution state of the CUDA backend: ops::Executor is opaque to everybody but its backend, and here it is a Stream.
#pragma once

#include <cuda_runtime.h>

namespace baton::ops {
class Executor;
}

namespace baton::cuda {

struct Stream {
  cudaStream_t handle = nullptr;
  int multiprocessors = 1;
  bool blocking = false;  // every op waits for its end: the host reads what ops wrote, and the op that failed is named
};

inline Stream& stream_of(const ops::Executor& executor) {
  return *reinterpret_cast<Stream*>(const_cast<ops::Executor*>(&executor));  // NOLINT: see above
}
inline ops::Executor& executor_of(Stream& stream) { return *reinterpret_cast<ops::Executor*>(&stream); }

}  // namespace baton::cuda
