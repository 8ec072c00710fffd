#include "tensor/number.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/random.h"

namespace baton {
namespace {

bool is_nan_code(int code) { return (code & 0x7F) == 0x7F; }

TEST(E4m3, ValuesFollowTheFormat) {
  EXPECT_EQ(to_float(e4m3{0x01}), 0x1p-9F);
  EXPECT_EQ(to_float(e4m3{0x07}), 7 * 0x1p-9F);
  EXPECT_EQ(to_float(e4m3{0x08}), 0x1p-6F);
  EXPECT_EQ(to_float(e4m3{0x38}), 1.0F);
  EXPECT_EQ(to_float(e4m3{0x7E}), 448.0F);
  EXPECT_EQ(to_float(e4m3{0xC1}), -2.25F);
  for (int code = 0; code < 256; ++code) EXPECT_EQ(std::isnan(to_float(e4m3{static_cast<uint8_t>(code)})), is_nan_code(code)) << code;
  // Codes of one sign are in order of their values.
  for (int code = 0; code < 0x7E; ++code)
    EXPECT_LT(to_float(e4m3{static_cast<uint8_t>(code)}), to_float(e4m3{static_cast<uint8_t>(code + 1)}));
}

TEST(E4m3, EveryCodeSurvivesARoundTrip) {
  for (int code = 0; code < 256; ++code) {
    const auto bits = static_cast<uint8_t>(code);
    EXPECT_EQ(to_e4m3(to_float(e4m3{bits})).bits, bits);
  }
}

// Nearest code by search; of two equally near the even one; beyond the largest, the largest.
uint8_t nearest_code(float x) {
  const auto sign = static_cast<uint8_t>(std::signbit(x) ? 0x80 : 0);
  const double a = std::fabs(static_cast<double>(x));
  int best = 0;
  double distance = std::numeric_limits<double>::infinity();
  for (int code = 0; code <= 0x7E; ++code) {
    const double d = std::fabs(a - static_cast<double>(to_float(e4m3{static_cast<uint8_t>(code)})));
    if (d < distance || (d == distance && code % 2 == 0)) {
      best = code;
      distance = d;
    }
  }
  if (std::isinf(a)) best = 0x7E;
  return static_cast<uint8_t>(sign | best);
}

void expect_nearest(float x) { ASSERT_EQ(int{to_e4m3(x).bits}, int{nearest_code(x)}) << x << " " << std::hexfloat << x; }

TEST(E4m3, RoundsToNearestEven) {
  // Codes, the midpoints between them, and the floats next to either.
  for (int code = 0; code < 0x7E; ++code) {
    const float low = to_float(e4m3{static_cast<uint8_t>(code)});
    const float high = to_float(e4m3{static_cast<uint8_t>(code + 1)});
    for (const float x : {low, 0.5F * (low + high), 0.25F * low + 0.75F * high})
      for (const float y : {x, std::nextafter(x, -1e9F), std::nextafter(x, 1e9F)})
        for (const float z : {y, -y}) expect_nearest(z);
  }
  for (const float x : {448.0F, 456.0F, 463.9999F, 464.0F, 464.1F, 479.0F, 480.0F, 1e10F, std::numeric_limits<float>::max(),
                        std::numeric_limits<float>::infinity(), std::numeric_limits<float>::denorm_min(), 0x1p-10F, 0x1.8p-10F, 0.0F})
    for (const float y : {x, -x}) expect_nearest(y);
}

TEST(E4m3, RoundsRandomFloatsToNearestEven) {
  for (uint32_t i = 0; i < 20'000; ++i) {
    const PhiloxBlock block = philox(7, {i, 0, 0, 0});
    // Exponents around the range of the format, its subnormals included; random mantissas and signs.
    const uint32_t exponent = 127 - 14 + block[0] % 26;
    expect_nearest(std::bit_cast<float>((block[1] & 0x807FFFFFU) | (exponent << 23)));
    const float any = std::bit_cast<float>(block[2]);
    if (!std::isnan(any)) expect_nearest(any);
  }
}

TEST(E4m3, KeepsNaN) {
  for (const uint32_t bits : {0x7FC00000U, 0xFFC00000U, 0x7F800001U, 0xFFFFFFFFU})
    EXPECT_TRUE(is_nan_code(to_e4m3(std::bit_cast<float>(bits)).bits)) << bits;
}

TEST(Bf16, EveryCodeSurvivesARoundTrip) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const bf16 x{static_cast<uint16_t>(code)};
    if (std::isnan(to_float(x)))
      EXPECT_TRUE(std::isnan(to_float(to_bf16(to_float(x)))));
    else
      EXPECT_EQ(to_bf16(to_float(x)).bits, code);
  }
}

TEST(Bf16, RoundsToNearestEven) {
  const auto rounded = [](uint32_t bits) { return to_bf16(std::bit_cast<float>(bits)).bits; };
  EXPECT_EQ(rounded(0x3F808000U), 0x3F80);  // half way: down to the even neighbour
  EXPECT_EQ(rounded(0x3F818000U), 0x3F82);  // half way: up to it
  EXPECT_EQ(rounded(0x3F808001U), 0x3F81);
  EXPECT_EQ(rounded(0x3F807FFFU), 0x3F80);
  EXPECT_EQ(rounded(0xBF818000U), 0xBF82);
  EXPECT_EQ(rounded(0x00008000U), 0x0000);  // subnormals likewise
  EXPECT_EQ(rounded(0x00018000U), 0x0002);
  EXPECT_EQ(rounded(0x7F7FFFFFU), 0x7F80);  // the largest float is nearer to infinity
  EXPECT_EQ(rounded(0x7F800000U), 0x7F80);
  for (uint32_t i = 0; i < 50'000; ++i) {
    const uint32_t bits = philox(3, {i, 0, 0, 0})[0];
    const auto x = std::bit_cast<float>(bits);
    if (!std::isfinite(x)) continue;
    const auto low = static_cast<uint16_t>(bits >> 16);
    const double below = to_float(bf16{low});
    const double above =
        low % 0x8000 == 0x7F7F ? std::copysign(0x1p128, below) : static_cast<double>(to_float(bf16{static_cast<uint16_t>(low + 1)}));
    const double to_below = std::fabs(x - below);
    const double to_above = std::fabs(above - x);
    const bool up = to_above < to_below || (to_above == to_below && low % 2 == 1);
    ASSERT_EQ(to_bf16(x).bits, up ? low + 1 : low) << bits;
  }
}

TEST(Bf16, KeepsNaN) {
  for (const uint32_t bits : {0x7FC00000U, 0x7F800001U, 0xFF800001U, 0xFFFFFFFFU, 0x7FFFFFFFU})
    EXPECT_TRUE(std::isnan(to_float(to_bf16(std::bit_cast<float>(bits))))) << bits;
}

}  // namespace
}  // namespace baton
