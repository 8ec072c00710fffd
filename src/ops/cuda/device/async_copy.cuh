// Copies of 16 bytes by single threads (cp.async), and wide accesses with cache hints.
//
// Traps: async_wait() covers the copies of the calling thread alone; other threads see them after a barrier.
#pragma once

#include <cstdint>

#include "ops/cuda/device/barrier.cuh"

namespace baton::cuda {

// Both addresses are multiples of 16. Past L1.
__device__ __forceinline__ void async_copy16(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global) : "memory");
}
__device__ __forceinline__ void async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// The line of 128 bytes to L2.
__device__ __forceinline__ void prefetch_line(const void* global) { asm volatile("prefetch.global.L2 [%0];" ::"l"(global) : "memory"); }

// For data that is touched once: not kept in L1, first to leave L2.
__device__ __forceinline__ uint4 load_streaming(const void* global, uint64_t policy) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(global), "l"(policy)
               : "memory");
  return v;
}
__device__ __forceinline__ void store_streaming(void* global, uint4 v, uint64_t policy) {
  asm volatile("st.global.L1::no_allocate.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(global), "r"(v.x), "r"(v.y), "r"(v.z),
               "r"(v.w), "l"(policy)
               : "memory");
}

}  // namespace baton::cuda
