#include "ops/cuda/staging.h"

#include <algorithm>
#include <cstring>

namespace baton::cuda {

Staging::~Staging() {
  for (const Slot& s : free_) {
    cudaStreamDestroy(s.stream);
    cudaFreeHost(s.memory);
  }
}

cudaError_t Staging::acquire(Slot& slot) {
  std::unique_lock lock(mutex_);
  freed_.wait(lock, [this] { return !free_.empty() || made_ < kMostBuffers; });
  if (!free_.empty()) {
    slot = free_.back();
    free_.pop_back();
    return cudaSuccess;
  }
  ++made_;
  lock.unlock();
  cudaError_t e = cudaHostAlloc(&slot.memory, kBufferBytes, cudaHostAllocDefault);
  if (e == cudaSuccess) {
    e = cudaStreamCreateWithFlags(&slot.stream, cudaStreamNonBlocking);
    if (e != cudaSuccess) cudaFreeHost(slot.memory);
  }
  if (e == cudaSuccess) return e;
  lock.lock();
  --made_;
  freed_.notify_one();
  return e;
}

void Staging::release(Slot slot) {
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(slot);
  }
  freed_.notify_one();
}

cudaError_t Staging::copy(void* device, ConstMatrixView host) {
  const auto row = static_cast<size_t>(host.cols * dtype_bytes(host.dtype));
  if (host.rows == 0 || row == 0) return cudaSuccess;
  Slot slot;
  if (const cudaError_t e = acquire(slot); e != cudaSuccess) return e;
  cudaError_t e = cudaSuccess;
  auto* to = static_cast<std::byte*>(device);
  // `held` bytes of the buffer wait to be sent.
  size_t held = 0;
  const auto send = [&] {
    e = cudaMemcpyAsync(to, slot.memory, held, cudaMemcpyHostToDevice, slot.stream);
    if (e == cudaSuccess) e = cudaStreamSynchronize(slot.stream);
    to += held;
    held = 0;
  };
  for (int64_t r = 0; r < host.rows && e == cudaSuccess; ++r) {
    const std::byte* from = host.row_bytes(r);
    for (size_t done = 0; done < row && e == cudaSuccess;) {
      const size_t n = std::min(row - done, kBufferBytes - held);
      std::memcpy(static_cast<std::byte*>(slot.memory) + held, from + done, n);
      done += n;
      held += n;
      if (held == kBufferBytes) send();
    }
  }
  if (e == cudaSuccess && held > 0) send();
  release(slot);
  return e;
}

}  // namespace baton::cuda
