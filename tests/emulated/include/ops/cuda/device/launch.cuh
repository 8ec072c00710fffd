// Stands in for the device's header: a launch runs the blocks one after the other, at once.
#pragma once

#include <cuda_runtime.h>

namespace baton::cuda {

template <class... Params, class... Args>
cudaError_t launch(void (*kernel)(Params...), unsigned grid, unsigned threads, size_t shared, int cluster, bool, cudaStream_t,
                   const Args&... args) {
  if (cluster != 1) std::abort();
  emulated::grid_size = {grid, 1, 1};
  for (unsigned block = 0; block < grid; ++block) {
    std::memset(emulated::shared, 0xFF, shared);
    emulated::run_block(threads, block, [&] { kernel(args...); });
  }
  return cudaSuccess;
}

template <class Kernel>
cudaError_t allow_shared(Kernel, size_t) {
  return cudaSuccess;
}

inline int emulated_multiprocessors = 1;  // what host code believes
inline int multiprocessors() { return emulated_multiprocessors; }

}  // namespace baton::cuda
