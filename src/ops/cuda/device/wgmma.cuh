// Warpgroup matrix products: descriptors and ordering. The instructions themselves: wgmma_e4m3.cuh, wgmma_bf16.cuh.
//
// Order of one batch: wgmma_fence(); run(); ... run(); wgmma_commit(); wgmma_wait<pending>(). Registers of the accumulator may not be
// touched between commit and wait; the compiler serialises the products (warning C7510) when it cannot prove that, so keep loops over them
// unrolled and the arrays local. The fence is needed again whenever the accumulators were written by other instructions since the last
// batch. FP8 operands are K-major only. The accumulator of an FP8 product keeps fewer bits than float: sum at most 128 products before
// adding in float.
#pragma once

#include <cstdint>

#include "ops/cuda/device/barrier.cuh"

namespace baton::cuda {

// K-major operand with rows of 128 bytes in the 128-byte swizzle: atoms of 8 rows = 1,024 bytes, one after the other; `shared` is the
// first atom (aligned to 1,024 bytes). The next 32 bytes of k are two further in the descriptor's unit of 16 bytes: desc + 2.
__device__ __forceinline__ uint64_t swizzled_operand(const void* shared) {
  constexpr uint64_t kAtomStride = 1024 / 16;
  constexpr uint64_t kSwizzle128 = 1;
  return static_cast<uint64_t>((shared_address(shared) & 0x3FFFFU) >> 4) | (uint64_t{1} << 16) | (kAtomStride << 32) | (kSwizzle128 << 62);
}

// Columns-first operand (kColumnsFirst) of several times 64 columns: slabs of rows of 128 bytes, a row for each k, `slab_bytes` apart, each
// in the 128-byte swizzle. The next 16 k are 128 further.
__device__ __forceinline__ uint64_t columns_operand(const void* shared, uint32_t slab_bytes) {
  constexpr uint64_t kAtomStride = 1024 / 16;
  constexpr uint64_t kSwizzle128 = 1;
  return static_cast<uint64_t>((shared_address(shared) & 0x3FFFFU) >> 4) | (static_cast<uint64_t>(slab_bytes / 16) << 16) |
         (kAtomStride << 32) | (kSwizzle128 << 62);
}

__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}
// Keeps the compiler from moving accesses of an accumulator register across this point.
template <int kCount>
__device__ __forceinline__ void pin_registers(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

}  // namespace baton::cuda
