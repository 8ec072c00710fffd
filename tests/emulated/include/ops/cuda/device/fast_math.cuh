// Stands in for the device's header. The tangent is off by as much as the device's may be.
#pragma once

#include <cmath>

namespace baton::cuda {

inline float flush_subnormal(float x) { return std::fabs(x) < 0x1p-126F ? 0.0F : x; }
inline float exp2_fast(float x) { return flush_subnormal(std::exp2(x)); }
inline float reciprocal_fast(float x) { return flush_subnormal(1.0F / x); }
inline float tanh_fast(float x) { return std::tanh(x) * (1 + 0x1p-11F * std::sin(1e5F * x)); }

}  // namespace baton::cuda
