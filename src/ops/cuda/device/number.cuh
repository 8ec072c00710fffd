// Narrow floating-point formats on the device.
//
// Traps: cvt.rn.satfinite.e4m3x2.f32 d, a, b puts a into the *upper* byte. e4m3 -> f16 is exact (f16 has more of everything); e4m3 -> bf16
// has no instruction on sm_90 and goes through f16 and f32.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace baton::cuda {

// Round to nearest even, values beyond 448 saturate.
__device__ __forceinline__ uint32_t pack_e4m3x2(float low, float high) {
  uint16_t r;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ uint32_t pack_e4m3x4(float a, float b, float c, float d) {
  return pack_e4m3x2(a, b) | (pack_e4m3x2(c, d) << 16);
}
__device__ __forceinline__ __half2 unpack_e4m3x2(uint16_t v) {
  uint32_t r;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(r) : "h"(v));
  return *reinterpret_cast<__half2*>(&r);
}
__device__ __forceinline__ uint32_t pack_bf16x2(float low, float high) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  return r;
}
__device__ __forceinline__ float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float bf16_high(uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000U); }

// Scale of a block of activations with this largest magnitude: x / scale fits e4m3.
__device__ __forceinline__ float e4m3_scale(float amax) { return amax > 0.0F ? __fdiv_rn(amax, 448.0F) : 1.0F; }

}  // namespace baton::cuda
