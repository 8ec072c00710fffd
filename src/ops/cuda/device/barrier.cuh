// mbarriers, named barriers and proxy fences.
//
// An mbarrier counts arrivals and transaction bytes; the phase flips when both reach zero. Waiters name the parity of the phase that they
// wait for: a barrier starts in phase 0, so "wait for the n-th completion" is wait(n & 1) with n counted from 0. A wait for parity 1 on a
// fresh barrier returns at once: that is how a producer finds every stage of a new ring empty.
//
// Traps:
//  * After init() the barrier must be made visible to the copy engine (fence_barrier_init) and to the other threads (__syncthreads, or a
//    cluster barrier where peers use it).
//  * Bytes may arrive before expect(): the count may go below zero inside a phase, because the pending arrival of expect() holds the phase
//    open.
//  * Ordinary stores (also stmatrix) to shared memory that a bulk store or wgmma reads next need fence_async_shared() in every writing
//    thread
//    *before* the barrier that orders writers and reader.
#pragma once

#include <cstdint>

namespace baton::cuda {

__device__ __forceinline__ uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

struct Barrier {
  uint64_t word;

  __device__ __forceinline__ uint32_t address() const { return shared_address(&word); }
  __device__ __forceinline__ void init(uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address()), "r"(arrivals) : "memory");
  }
  __device__ __forceinline__ void arrive() { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address()) : "memory"); }
  // Arrives on the barrier at the same offset in the shared memory of another block of the cluster. Orders nothing beyond that block:
  // enough to hand back memory that was only read; a release at cluster scope waits for all earlier accesses and costs far more.
  __device__ __forceinline__ void arrive_remote(uint32_t cta_rank) {
    asm volatile(
        "{\n .reg .b32 remote;\n"
        " mapa.shared::cluster.u32 remote, %0, %1;\n"
        " mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(address()),
        "r"(cta_rank)
        : "memory");
  }
  // One arrival that also announces `bytes` of copies.
  __device__ __forceinline__ void expect(uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address()), "r"(bytes) : "memory");
  }
  __device__ __forceinline__ bool test(uint32_t parity) const {
    uint32_t done;
    asm volatile(
        "{\n .reg .pred p;\n"
        " mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        " selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(address()), "r"(parity)
        : "memory");
    return done != 0;
  }
  __device__ __forceinline__ void wait(uint32_t parity) const {
    while (!test(parity)) {
    }
  }
};

// Position in a ring of stages with the parity of its current lap.
struct RingCursor {
  uint32_t index = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance(uint32_t stages) {
    if (++index == stages) {
      index = 0;
      parity ^= 1;
    }
  }
};

__device__ __forceinline__ void fence_barrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ __forceinline__ void fence_async_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Between ordinary accesses to global memory and bulk copies of the same bytes (either direction).
__device__ __forceinline__ void fence_async_global() { asm volatile("fence.proxy.async.global;" ::: "memory"); }

// Barrier among `threads` threads of a block, whole warps; id 0 is __syncthreads.
__device__ __forceinline__ void named_barrier(uint32_t id, uint32_t threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace baton::cuda
