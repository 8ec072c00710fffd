// One query over any number of tokens: the softmax that runs along.
#pragma once

#include "ops/cuda/plain/block.cuh"

namespace baton::cuda::plain {

inline constexpr int kTokens = 32;  // of a step

// o = sum over tokens of softmax(scale q . key) value, q [dim] and o [dim] in shared memory, as are kTokens scores. token(i) has key(c) and
// value(c). count >= 1. All threads call it, behind a barrier after q was written; o is complete for all afterwards.
template <class Token>
__device__ __forceinline__ void attend_tokens(int count, int dim, float scale, const float* q, float* o, float* scores,
                                              const Token& token) {
  for (int c = thread(); c < dim; c += kThreads) o[c] = 0;
  float top = -infinity();
  float weight = 0;
  for (int first = 0; first < count; first += kTokens) {
    const int n = count - first < kTokens ? count - first : kTokens;
    __syncthreads();
    for (int i = warp(); i < n; i += kWarps) {
      const auto of = token(first + i);
      float sum = 0;
      for (int c = lane(); c < dim; c += 32) sum += q[c] * of.key(c);
      sum = warp_sum(sum);
      if (lane() == 0) scores[i] = sum * scale;
    }
    __syncthreads();
    const float mine = lane() < n ? scores[lane()] : -infinity();  // every warp for itself
    const float above = fmaxf(top, lanes_max<1, 16>(mine));
    const float kept = expf(top - above);
    const float part = lane() < n ? expf(mine - above) : 0.0F;
    weight = weight * kept + warp_sum(part);
    top = above;
    for (int c = thread(); c < dim; c += kThreads) o[c] *= kept;
    for (int i = 0; i < n; ++i) {
      const float w = __shfl_sync(0xFFFFFFFFU, part, i);
      const auto of = token(first + i);
      for (int c = thread(); c < dim; c += kThreads) o[c] += w * of.value(c);
    }
  }
  __syncthreads();
  for (int c = thread(); c < dim; c += kThreads) o[c] *= 1.0F / weight;
  __syncthreads();
}

}  // namespace baton::cuda::plain
