// Stands in for the device's header: products are done where they are issued.
#pragma once

#include "ops/cuda/device/barrier.cuh"

namespace baton::cuda {

inline uint64_t swizzled_operand(const void* shared) {
  if (shared_address(shared) % 1024 != 0) std::abort();
  return shared_address(shared) / 16;
}
// The slab stride in the upper half.
inline uint64_t columns_operand(const void* shared, uint32_t slab_bytes) { return swizzled_operand(shared) | uint64_t{slab_bytes} << 32; }
inline void wgmma_fence() {}
inline void wgmma_commit() {}
template <int kPending>
void wgmma_wait() {}
template <int kCount>
void pin_registers(float (&)[kCount]) {}

}  // namespace baton::cuda
