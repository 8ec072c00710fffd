// Convolution, activation and gate of channels of one head, token by token. All arithmetic is named by rounding, so that every kernel
// and every number of rows gives the same bits.
#pragma once

#include "ops/cuda/device/fast_math.cuh"
#include "ops/cuda/kda/stage.cuh"

namespace baton::cuda::kda {

inline constexpr float kLog2e = 1.44269504F;
// 1 / (1 + e^-x); an overflow of the exponential gives 0.
__device__ __forceinline__ float sigmoid(float x) { return reciprocal_fast(__fadd_rn(1.0F, exp2_fast(__fmul_rn(x, -kLog2e)))); }

__device__ __forceinline__ float2 load_pair(const bf16x* p) {
  const uint32_t v = *reinterpret_cast<const uint32_t*>(p);
  return make_float2(__uint_as_float(v << 16), __uint_as_float(v & 0xFFFF0000U));
}

// One part of the rows (q, k or v) of two neighbouring channels: the convolved and activated values of token after token.
struct ConvLine {
  const bf16x* next;  // row of the current token; rows are kDim apart
  float4 w0, w1;
  float2 x0, x1, x2;

  // From `row` on: the row three before the first token's own, at the first of the two channels.
  static __device__ __forceinline__ ConvLine from(const bf16x* row, const float4 (&taps)[2][kDim / 2], int channel) {
    return {row + 3 * kDim, taps[0][channel / 2], taps[1][channel / 2], load_pair(row), load_pair(row + kDim), load_pair(row + 2 * kDim)};
  }
  static __device__ __forceinline__ float tap(float4 w, float x0, float x1, float x2, float x3) {
    const float s = __fmaf_rn(w.w, x3, __fmaf_rn(w.z, x2, __fmaf_rn(w.y, x1, __fmul_rn(w.x, x0))));
    return __fmul_rn(s, sigmoid(s));
  }
  __device__ __forceinline__ float2 operator()() {
    const float2 x3 = load_pair(next);
    const float2 y = make_float2(tap(w0, x0.x, x1.x, x2.x, x3.x), tap(w1, x0.y, x1.y, x2.y, x3.y));
    x0 = x1, x1 = x2, x2 = x3;
    next += kDim;
    return y;
  }
  // Zero where `real` is not: without a branch, so that tokens overlap. Rows that hold anything may be read for it.
  __device__ __forceinline__ float2 masked(bool real) {
    const float2 y = (*this)();
    return make_float2(real ? y.x : 0.0F, real ? y.y : 0.0F);
  }
};

// e^a_log of the head, times -log2 e.
__device__ __forceinline__ float decay_rate(const DecodeParams& p, int head) {
  return __fmul_rn(-kLog2e, exp2_fast(__fmul_rn(__ldg(p.a_log + head), kLog2e)));
}

// log2 of the decay of two neighbouring channels.
struct DecayGate {
  float rate;  // decay_rate()
  float2 bias;
  float bound;  // lower_bound * log2 e

  static __device__ __forceinline__ DecayGate of(const DecodeParams& p, float rate, const StagedHead& side, int channel) {
    return {rate, *reinterpret_cast<const float2*>(&side.bias[channel]), p.lower_bound_log2};
  }
  __device__ __forceinline__ float one(float a, float b) const {
    return __fmul_rn(bound, reciprocal_fast(__fadd_rn(1.0F, exp2_fast(__fmul_rn(rate, __fadd_rn(a, b))))));
  }
  __device__ __forceinline__ float2 operator()(const bf16x* a) const {
    const float2 v = load_pair(a);
    return make_float2(one(v.x, bias.x), one(v.y, bias.y));
  }
};

// One halving: lanes whose number has bit kBit keep the upper half of the values, the others the lower.
template <int kCount, int kBit>
__device__ __forceinline__ float warp_sums_from(float (&v)[kCount]) {
  if constexpr (kCount == 1) {
    float s = v[0];
#pragma unroll
    for (int bit = kBit; bit > 0; bit /= 2) s = __fadd_rn(s, __shfl_xor_sync(0xFFFFFFFFU, s, bit));
    return s;
  } else {
    const bool upper = (static_cast<int>(threadIdx.x) & kBit) != 0;
    float half[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float keep = upper ? v[i + kCount / 2] : v[i];
      const float send = upper ? v[i] : v[i + kCount / 2];
      half[i] = __fadd_rn(keep, __shfl_xor_sync(0xFFFFFFFFU, send, kBit));
    }
    return warp_sums_from<kCount / 2, kBit / 2>(half);
  }
}
// Sums over the lanes of a warp, kCount values at once (a power of two up to 32): lane l returns the sum of value sum_index<kCount>(l).
template <int kCount>
__device__ __forceinline__ float warp_sums(float (&v)[kCount]) {
  return warp_sums_from<kCount, 16>(v);
}
template <int kCount>
__device__ __forceinline__ int sum_index(int lane) {
  int index = 0;
  int bit = 16;
#pragma unroll
  for (int n = kCount / 2; n > 0; n /= 2) {
    if ((lane & bit) != 0) index += n;
    bit /= 2;
  }
  return index;
}
// True in one lane of those that hold the same sum.
template <int kCount>
__device__ __forceinline__ bool sum_owner(int lane) {
  return lane % (32 / kCount) == 0;
}

}  // namespace baton::cuda::kda
