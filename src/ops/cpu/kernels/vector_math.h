// Exponential and friends as branch-free expressions that a compiler turns into vector code.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "ops/cpu/kernels/simd.h"

namespace baton::cpu::BATON_ISA_NAMESPACE {

// exp(x) with a relative error below 2e-7 for |x| < 87; saturates outside [-87.3, 88.7]. x = n ln 2 + r, |r| <= ln 2 / 2, then a polynomial
// of degree 6 in r (minimax on that interval), and n goes into the exponent. The plain loops take the library's.
#if BATON_VECTOR_FLOATS == 1
inline float exp_approx(float x) { return static_cast<float>(std::exp(double{x})); }
#else
inline float exp_approx(float x) {
  x = x < -87.3F ? -87.3F : x;
  x = x > 88.7F ? 88.7F : x;
  const float shifted = x * 1.44269504089F + 12582912.0F;  // 1.5 * 2^23: the integer part ends up in the low bits
  const float n = shifted - 12582912.0F;
  float r = x - n * 0.693359375F;
  r = r + n * 2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const int32_t exponent = static_cast<int32_t>(n) << 23;
  return std::bit_cast<float>(std::bit_cast<int32_t>(p) + exponent);
}
#endif

inline float sigmoid(float x) { return 1.0F / (1.0F + exp_approx(-x)); }
inline float silu(float x) { return x / (1.0F + exp_approx(-x)); }

}  // namespace baton::cpu::BATON_ISA_NAMESPACE
