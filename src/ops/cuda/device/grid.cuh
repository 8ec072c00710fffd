// Blocks among each other: dependent launches, clusters, flags in global memory, register budgets of warpgroups.
#pragma once

#include <cstdint>

namespace baton::cuda {

// Programmatic dependent launch. wait_for_predecessor() returns when every kernel before this one in the stream is complete and its writes
// are visible, *provided that each of them waits as well*: a kernel that does not wait breaks the chain for its successors. Without the
// launch attribute both calls do nothing. What a kernel reads before the wait must have been written two kernels earlier or more.
__device__ __forceinline__ void wait_for_predecessor() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void allow_successor() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// Moves registers between warpgroups. Needs __launch_bounds__(threads, 1), each role in one branch, and the sum within 64 K registers.
template <int kRegisters>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
__device__ __forceinline__ uint32_t cluster_index() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%clusterid.x;" : "=r"(r));
  return r;
}
__device__ __forceinline__ uint32_t cluster_count() {
  uint32_t r;
  asm volatile("mov.u32 %0, %%nclusterid.x;" : "=r"(r));
  return r;
}
// All threads of all blocks of the cluster. A block must not exit while a peer may still write to its shared memory.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\n barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Its two halves, for threads that have nothing to wait for yet.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// An arrival that orders no memory, for "every block has begun".
__device__ __forceinline__ void cluster_begin() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
// Reads a float at the offset of `local` in the shared memory of another block of the cluster; volatile keeps it behind cluster_sync().
__device__ __forceinline__ float load_remote(const float* local, uint32_t cta_rank) {
  float v;
  asm volatile(
      "{\n .reg .b32 remote;\n"
      " mapa.shared::cluster.u32 remote, %1, %2;\n"
      " ld.shared::cluster.f32 %0, [remote];\n}"
      : "=f"(v)
      : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(local))), "r"(cta_rank)
      : "memory");
  return v;
}
// The other direction: visible to the other block behind the next cluster barrier. Both blocks must have begun.
__device__ __forceinline__ void store_remote(const float* local, uint32_t cta_rank, float v) {
  asm volatile(
      "{\n .reg .b32 remote;\n"
      " mapa.shared::cluster.u32 remote, %0, %1;\n"
      " st.shared::cluster.f32 [remote], %2;\n}" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(local))),
      "r"(cta_rank), "f"(v)
      : "memory");
}

__device__ __forceinline__ uint32_t load_acquire(const uint32_t* p) {
  uint32_t v;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
__device__ __forceinline__ void add_release(uint32_t* p, uint32_t v) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
// Past the L1 cache: for data that another kernel wrote while this one was already resident.
__device__ __forceinline__ int4 load_volatile(const int4* p) {
  int4 v;
  asm volatile("ld.volatile.global.v4.s32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p) : "memory");
  return v;
}

// True in one lane of a converged warp.
__device__ __forceinline__ bool elect_one() {
  uint32_t yes;
  asm volatile("{\n .reg .pred p;\n elect.sync _|p, 0xFFFFFFFF;\n selp.u32 %0, 1, 0, p;\n}" : "=r"(yes));
  return yes != 0;
}

}  // namespace baton::cuda
