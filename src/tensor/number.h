// Storage types of tensors, and exact conversions of the narrow floating-point formats.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace baton {

enum class DType : uint8_t { kF32, kBF16, kF8E4M3, kI32, kU8 };

constexpr int64_t dtype_bytes(DType t) {
  switch (t) {
    case DType::kF32:
    case DType::kI32: return 4;
    case DType::kBF16: return 2;
    case DType::kF8E4M3:
    case DType::kU8: return 1;
  }
  return 0;
}

constexpr std::string_view dtype_name(DType t) {
  switch (t) {
    case DType::kF32: return "f32";
    case DType::kBF16: return "bf16";
    case DType::kF8E4M3: return "f8_e4m3";
    case DType::kI32: return "i32";
    case DType::kU8: return "u8";
  }
  return "?";
}

// bfloat16: the upper half of a float. Conversion from float rounds to nearest even; NaN stays NaN.
struct bf16 {
  uint16_t bits;
};

constexpr float to_float(bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }
constexpr float to_float(float x) { return x; }

constexpr bf16 to_bf16(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7FFFFFFFU) > 0x7F800000U) return {static_cast<uint16_t>((u >> 16) | 0x40U)};
  return {static_cast<uint16_t>((u + 0x7FFFU + ((u >> 16) & 1U)) >> 16)};
}

// e4m3fn: 1 sign, 4 exponent (bias 7), 3 mantissa bits; no infinities; largest 448; NaN is 0x7F / 0xFF.
struct e4m3 {
  uint8_t bits;
};
inline constexpr float kE4m3Max = 448.0F;

constexpr float to_float(e4m3 x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x80U) << 24;
  const uint32_t exponent = (x.bits >> 3) & 0xFU;
  const uint32_t mantissa = x.bits & 0x7U;
  if (exponent == 15 && mantissa == 7) return std::bit_cast<float>(sign | 0x7FC00000U);
  if (exponent == 0) return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(mantissa) * 0x1p-9F));
  return std::bit_cast<float>(sign | ((exponent + 120U) << 23) | (mantissa << 20));
}

// Round to nearest even; values beyond 448 saturate (the conversion used when quantising); NaN stays NaN.
constexpr e4m3 to_e4m3(float x) {
  const auto u = std::bit_cast<uint32_t>(x);
  const auto sign = static_cast<uint8_t>((u >> 24) & 0x80U);
  const uint32_t a = u & 0x7FFFFFFFU;
  if (a > 0x7F800000U) return {static_cast<uint8_t>(sign | 0x7FU)};
  if (a >= std::bit_cast<uint32_t>(464.0F)) return {static_cast<uint8_t>(sign | 0x7EU)};
  if (a < std::bit_cast<uint32_t>(0x1p-6F)) {  // subnormal: multiples of 2^-9; adding 2^14 leaves one ulp = 2^-9
    const float shifted = std::bit_cast<float>(a) + 0x1p14F;
    return {static_cast<uint8_t>(sign | (std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0x1p14F)))};
  }
  const uint32_t rounded = a + 0x7FFFFU + ((a >> 20) & 1U);
  const uint32_t code = (rounded >> 20) - (120U << 3);
  return {static_cast<uint8_t>(sign | (code > 0x7EU ? 0x7EU : code))};
}

}  // namespace baton
