// Packed e4m3 weights to the bf16 order, exactly. Included only by wide kernel files.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "tensor/number.h"

namespace baton::cpu::BATON_ISA_NAMESPACE {

#if BATON_VECTOR_FLOATS == 16

constexpr int64_t kExpandPrefetchBytes = 4096;

// High and low byte of the bf16 of every magnitude.
struct E4m3Tables {
  alignas(64) uint8_t high[128];
  alignas(64) uint8_t low[128];
};
constexpr E4m3Tables make_e4m3_tables() {
  E4m3Tables t{};
  for (unsigned i = 0; i < 128; ++i) {
    const uint16_t bits = to_bf16(to_float(e4m3{static_cast<uint8_t>(i)})).bits;  // exact: e4m3 is a subset of bf16
    t.high[i] = static_cast<uint8_t>(bits >> 8);
    t.low[i] = static_cast<uint8_t>(bits);
  }
  return t;
}
inline constexpr E4m3Tables kE4m3Tables = make_e4m3_tables();

// `lines` of 64 elements; what follows them is wanted next and is fetched meanwhile.
inline __attribute__((always_inline)) void expand_e4m3(const uint8_t* src, uint16_t* dst, int64_t lines) {
  const __m512i sign = _mm512_set1_epi8(-128);
  // Of normal numbers both bytes are affine functions of the code over GF(2): high = sign, then the exponent's upper bits + 0x3C; low = the
  // exponent's last bit and the mantissa. Subnormal numbers, zero and NaN are rare and go through the tables.
  const __m512i high_matrix = _mm512_set1_epi64(0x1020404040404080);
  const __m512i low_matrix = _mm512_set1_epi64(0x0000000001020408);
  for (int64_t i = 0; i < lines; ++i) {
    const __m512i x = _mm512_loadu_si512(src + i * 64);
    _mm_prefetch(reinterpret_cast<const char*>(src + i * 64 + kExpandPrefetchBytes), _MM_HINT_T0);
    const __m512i magnitude = _mm512_andnot_si512(sign, x);
    __m512i high = _mm512_gf2p8affine_epi64_epi8(x, high_matrix, 0x3C);
    __m512i low = _mm512_gf2p8affine_epi64_epi8(x, low_matrix, 0);
    // magnitude - 8 wraps around below 8; NaN is 0x7F.
    if (_mm512_cmpgt_epu8_mask(_mm512_sub_epi8(magnitude, _mm512_set1_epi8(8)), _mm512_set1_epi8(0x7E - 8)) != 0) [[unlikely]] {
      low = _mm512_permutex2var_epi8(_mm512_load_si512(kE4m3Tables.low), magnitude, _mm512_load_si512(kE4m3Tables.low + 64));
      high = _mm512_permutex2var_epi8(_mm512_load_si512(kE4m3Tables.high), magnitude, _mm512_load_si512(kE4m3Tables.high + 64));
      high = _mm512_ternarylogic_epi64(high, x, sign, 0xF8);  // a | (b & c)
    }
    _mm512_storeu_si512(dst + i * 64, _mm512_unpacklo_epi8(low, high));
    _mm512_storeu_si512(dst + i * 64 + 32, _mm512_unpackhi_epi8(low, high));
  }
}

#else

inline __attribute__((always_inline)) void expand_e4m3(const uint8_t* src, uint16_t* dst, int64_t lines) {
  // By the high nibble: sign and upper exponent bits of normal numbers. By the low three bits: subnormal numbers.
  const __m256i normal = _mm256_broadcastsi128_si256(_mm_setr_epi8(0x3C, 0x3D, 0x3E, 0x3F, 0x40, 0x41, 0x42, 0x43,  //
                                                                   -0x44, -0x43, -0x42, -0x41, -0x40, -0x3F, -0x3E, -0x3D));
  const __m256i small_high =
      _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0x3B, 0x3B, 0x3B, 0x3C, 0x3C, 0x3C, 0x3C, 0, 0, 0, 0, 0, 0, 0, 0));
  const __m256i small_low = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, -0x80, -0x40, 0, 0x20, 0x40, 0x60, 0, 0, 0, 0, 0, 0, 0, 0));
  const __m256i nibble = _mm256_set1_epi8(0x0F);
  const __m256i sign = _mm256_set1_epi8(-128);
  const __m256i magnitude = _mm256_set1_epi8(0x7F);
  for (int64_t i = 0; i < 2 * lines; ++i) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + i * 32));
    const __m256i index = _mm256_and_si256(x, nibble);
    const __m256i is_small = _mm256_cmpeq_epi8(_mm256_and_si256(x, _mm256_set1_epi8(0x78)), _mm256_setzero_si256());
    const __m256i is_nan = _mm256_cmpeq_epi8(_mm256_and_si256(x, magnitude), magnitude);
    const __m256i signs = _mm256_and_si256(x, sign);
    __m256i high = _mm256_shuffle_epi8(normal, _mm256_and_si256(_mm256_srli_epi16(x, 4), nibble));
    __m256i low = _mm256_slli_epi16(index, 4);
    high = _mm256_blendv_epi8(high, _mm256_or_si256(_mm256_shuffle_epi8(small_high, index), signs), is_small);
    low = _mm256_blendv_epi8(low, _mm256_shuffle_epi8(small_low, index), is_small);
    high = _mm256_blendv_epi8(high, _mm256_or_si256(magnitude, signs), is_nan);
    low = _mm256_blendv_epi8(low, _mm256_set1_epi8(-0x40), is_nan);
    // Half h of a line holds columns 8h ... 8h + 7 of both of its pairs.
    uint16_t* out = dst + i / 2 * 64 + i % 2 * 16;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_unpacklo_epi8(low, high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 32), _mm256_unpackhi_epi8(low, high));
  }
}

#endif

}  // namespace baton::cpu::BATON_ISA_NAMESPACE
