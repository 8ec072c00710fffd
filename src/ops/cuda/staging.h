// Host to device through pinned memory: several threads copy into buffers of their own, each with a stream of its own, so that reading,
// copying and the bus overlap. From pageable memory the driver does the same with one buffer for all.
//
// Threads: any number at once; those beyond the number of buffers wait.
#pragma once

#include <cuda_runtime.h>

#include <condition_variable>
#include <mutex>
#include <vector>

#include "tensor/view.h"

namespace baton::cuda {

class Staging {
 public:
  Staging() = default;
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Rows of `host` one behind the other at `device`; done when it returns. What was given to other streams for that memory must have ended.
  cudaError_t copy(void* device, ConstMatrixView host);

 private:
  static constexpr int kMostBuffers = 16;
  static constexpr size_t kBufferBytes = size_t{8} << 20;  // a piece of the loader (WeightBuilder)
  struct Slot {
    void* memory = nullptr;
    cudaStream_t stream = nullptr;
  };

  cudaError_t acquire(Slot& slot);
  void release(Slot slot);

  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<Slot> free_;
  int made_ = 0;
};

}  // namespace baton::cuda
