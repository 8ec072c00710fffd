// Contiguous copies by the copy engine (cp.async.bulk): no descriptor, one instruction for any number of bytes.
//
// Traps: source, destination and size are multiples of 16 bytes. Loads complete on an mbarrier, stores in bulk groups of the issuing
// thread: bulk_wait_read() says that the shared memory may be reused, bulk_wait() that the bytes are written.
#pragma once

#include <cstdint>

#include "ops/cuda/device/barrier.cuh"

namespace baton::cuda {

// L2 hints. Streams that are read once should not push out what is read again.
__device__ __forceinline__ uint64_t policy_evict_first() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ uint64_t policy_evict_last() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ uint64_t policy_evict_normal() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ void bulk_load(void* shared, const void* global, uint32_t bytes, Barrier& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(shared)),
               "l"(global), "r"(bytes), "r"(barrier.address())
               : "memory");
}
__device__ __forceinline__ void bulk_load(void* shared, const void* global, uint32_t bytes, Barrier& barrier, uint64_t policy) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(
                   shared_address(shared)),
               "l"(global), "r"(bytes), "r"(barrier.address()), "l"(policy)
               : "memory");
}
// To L2 only. Nothing tells when it is there.
__device__ __forceinline__ void bulk_prefetch(const void* global, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(global), "r"(bytes) : "memory");
}
// To the same offsets of every block in `mask`; each block's own barrier at that offset counts the bytes.
__device__ __forceinline__ void bulk_load_multicast(void* shared, const void* global, uint32_t bytes, Barrier& barrier, uint16_t mask,
                                                    uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster.L2::cache_hint [%0], [%1], %2, [%3], %4, "
      "%5;" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(barrier.address()), "h"(mask), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void bulk_store(void* global, const void* shared, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(global), "r"(shared_address(shared)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void bulk_store(void* global, const void* shared, uint32_t bytes, uint64_t policy) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;" ::"l"(global), "r"(shared_address(shared)),
               "r"(bytes), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int kPending>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}
template <int kPending>
__device__ __forceinline__ void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(kPending) : "memory");
}

}  // namespace baton::cuda
