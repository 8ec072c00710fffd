// What the threads of a block do together. All plain kernels have blocks of kThreads; their dynamic shared memory begins with kScratch
// floats for these functions.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "ops/cuda/device/reduce.cuh"

namespace baton::cuda::plain {

inline constexpr int kThreads = 128;
inline constexpr int kWarps = kThreads / 32;
inline constexpr int kScratch = 32;

// The dynamic shared memory of the block.
__device__ __forceinline__ float* shared_floats() {
  extern __shared__ __align__(1024) std::byte shared_memory[];
  return reinterpret_cast<float*>(shared_memory);
}

__device__ __forceinline__ int thread() { return static_cast<int>(threadIdx.x); }
__device__ __forceinline__ int lane() { return thread() & 31; }
__device__ __forceinline__ int warp() { return thread() / 32; }
__device__ __forceinline__ float infinity() { return __builtin_huge_valf(); }
__device__ __forceinline__ float sigmoid(float x) { return 1.0F / (1.0F + expf(-x)); }
__device__ __forceinline__ float silu(float x) { return x / (1.0F + expf(-x)); }

// fn(a, b) over the values of all warps, in their order; every thread gets the result. Leading barrier: scratch may still be in use.
template <class T, class Fn>
__device__ __forceinline__ T over_warps(T v, float* scratch, const Fn& fn) {
  static_assert(sizeof(T) <= 8);
  auto* shown = reinterpret_cast<T*>(scratch);
  __syncthreads();
  if (lane() == 0) shown[warp()] = v;
  __syncthreads();
  T r = shown[0];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) r = fn(r, shown[w]);
  return r;
}
__device__ __forceinline__ float block_sum(float v, float* scratch) {
  return over_warps(warp_sum(v), scratch, [](float a, float b) { return a + b; });
}
__device__ __forceinline__ float block_max(float v, float* scratch) {
  return over_warps(lanes_max<1, 16>(v), scratch, [](float a, float b) { return fmaxf(a, b); });
}
__device__ __forceinline__ int block_count(int v, float* scratch) {
  return over_warps(static_cast<int>(__reduce_add_sync(0xFFFFFFFFU, static_cast<uint32_t>(v))), scratch,
                    [](int a, int b) { return a + b; });
}
__device__ __forceinline__ double block_sum(double v, float* scratch) {
#pragma unroll
  for (int bit = 16; bit > 0; bit /= 2) v += __shfl_xor_sync(0xFFFFFFFFU, v, bit);
  return over_warps(v, scratch, [](double a, double b) { return a + b; });
}

// Numbers in the order of the floats; -0 counts as 0.
__device__ __forceinline__ uint32_t order_key(float x) {
  const uint32_t u = __float_as_uint(x + 0.0F);
  return (u >> 31) != 0 ? ~u : u | 0x80000000U;
}
__device__ __forceinline__ float of_order_key(uint32_t key) { return __uint_as_float((key >> 31) != 0 ? key & 0x7FFFFFFFU : ~key); }

// A value and where it was found: the larger value wins, then the lower index.
struct Best {
  float value;
  int32_t index;
};
__device__ __forceinline__ Best better(const Best& a, const Best& b) {
  return a.value > b.value || (a.value == b.value && a.index < b.index) ? a : b;
}
__device__ __forceinline__ Best warp_best(Best v) {
#pragma unroll
  for (int bit = 16; bit > 0; bit /= 2)
    v = better(v, {__shfl_xor_sync(0xFFFFFFFFU, v.value, bit), __shfl_xor_sync(0xFFFFFFFFU, v.index, bit)});
  return v;
}
__device__ __forceinline__ Best block_best(Best v, float* scratch) {
  return over_warps(warp_best(v), scratch, [](const Best& a, const Best& b) { return better(a, b); });
}

// The largest of x [n] that ranks behind `last`: {-inf, INT32_MAX} if there is none. Begin with {inf, -1}.
__device__ __forceinline__ Best next_best(const float* x, int n, const Best& last, float* scratch) {
  Best best{-infinity(), INT32_MAX};
  for (int i = thread(); i < n; i += kThreads)
    if (x[i] < last.value || (x[i] == last.value && i > last.index)) best = better(best, {x[i], i});
  return block_best(best, scratch);
}

// x / sqrt(mean(x^2) + eps) of n floats in shared memory: the factor.
__device__ __forceinline__ float inverse_rms(const float* x, int n, float eps, float* scratch) {
  float sum = 0;
  for (int i = thread(); i < n; i += kThreads) sum += x[i] * x[i];
  return 1.0F / sqrtf(block_sum(sum, scratch) / static_cast<float>(n) + eps);
}

// Orthonormal Hadamard transforms of neighbouring runs of n (a power of two) floats, `count` of them in all, in shared memory.
__device__ __forceinline__ void hadamard(float* x, int count, int n) {
  for (int half = 1; half < n; half *= 2) {
    __syncthreads();
    for (int i = thread(); i < count / 2; i += kThreads) {
      const int j = i / half * 2 * half + i % half;
      const float a = x[j];
      const float b = x[j + half];
      x[j] = a + b;
      x[j + half] = a - b;
    }
  }
  __syncthreads();
  const float factor = 1.0F / sqrtf(static_cast<float>(n));
  for (int i = thread(); i < count; i += kThreads) x[i] *= factor;
  __syncthreads();
}

// The largest key that `enough` holds for, found by halving: enough(low) holds, and whatever holds for a key holds for those below it.
template <class Enough>
__device__ __forceinline__ uint32_t largest_key(uint32_t low, const Enough& enough) {
  uint32_t high = 0xFFFFFFFFU;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2 + 1;
    if (enough(middle)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace baton::cuda::plain
