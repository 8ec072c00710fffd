// Stands in for the device's header.
#pragma once

#include "emulated/simt.h"
#include "tensor/number.h"

namespace baton::cuda {

inline uint32_t pack_bf16x2(float low, float high) { return to_bf16(low).bits | static_cast<uint32_t>(to_bf16(high).bits) << 16; }
inline float bf16_low(uint32_t pair) { return __uint_as_float(pair << 16); }
inline float bf16_high(uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000U); }

}  // namespace baton::cuda
