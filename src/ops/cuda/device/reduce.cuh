// Reductions inside a warp. Every lane gets the result; the order of a sum is fixed by the lane numbers, so it is the same in every run.
#pragma once

namespace baton::cuda {

template <int kFirst, int kLast>
__device__ __forceinline__ float lanes_max(float v) {  // over the lanes that differ in the bits kFirst ... kLast of their number
#pragma unroll
  for (int bit = kFirst; bit <= kLast; bit *= 2) v = fmaxf(v, __shfl_xor_sync(0xFFFFFFFFU, v, bit));
  return v;
}
__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int bit = 16; bit > 0; bit /= 2) v += __shfl_xor_sync(0xFFFFFFFFU, v, bit);
  return v;
}

}  // namespace baton::cuda
