// Stands in for the device's header.
#pragma once

#include "emulated/simt.h"
#include "tensor/number.h"

namespace baton::cuda {

inline uint32_t pack_bf16x2(float low, float high) { return to_bf16(low).bits | static_cast<uint32_t>(to_bf16(high).bits) << 16; }
inline uint32_t pack_e4m3x4(float a, float b, float c, float d) {
  return to_e4m3(a).bits | static_cast<uint32_t>(to_e4m3(b).bits) << 8 | static_cast<uint32_t>(to_e4m3(c).bits) << 16 |
         static_cast<uint32_t>(to_e4m3(d).bits) << 24;
}
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float e4m3_scale(float amax) { return amax > 0.0F ? amax / 448.0F : 1.0F; }
inline float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
inline float bf16_high(uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000U); }

}  // namespace baton::cuda
