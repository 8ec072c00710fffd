// Sixteen floats in the registers of the instruction set: one column block of a weight. Included only by wide kernel files.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#define BATON_INLINE inline __attribute__((always_inline))

namespace baton::cpu::BATON_ISA_NAMESPACE {

#if BATON_VECTOR_FLOATS == 16

struct Vec16 {
  __m512 v;
};
BATON_INLINE Vec16 zero16() { return {_mm512_setzero_ps()}; }
BATON_INLINE Vec16 load16(const float* p) { return {_mm512_loadu_ps(p)}; }
BATON_INLINE void store16(float* p, Vec16 a) { _mm512_storeu_ps(p, a.v); }
BATON_INLINE Vec16 broadcast16(float x) { return {_mm512_set1_ps(x)}; }
BATON_INLINE Vec16 add(Vec16 a, Vec16 b) { return {_mm512_add_ps(a.v, b.v)}; }
BATON_INLINE Vec16 fma(Vec16 a, Vec16 b, Vec16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// Even and odd k of a pair line of bf16.
BATON_INLINE void load_pair(const uint16_t* p, Vec16& even, Vec16& odd) {
  const __m512i x = _mm512_loadu_si512(p);
  even.v = _mm512_castsi512_ps(_mm512_slli_epi32(x, 16));
  odd.v = _mm512_castsi512_ps(_mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xFFFF0000U))));
}

#else

struct Vec16 {
  __m256 lo;
  __m256 hi;
};
BATON_INLINE Vec16 zero16() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
BATON_INLINE Vec16 load16(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
BATON_INLINE void store16(float* p, Vec16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
BATON_INLINE Vec16 broadcast16(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
BATON_INLINE Vec16 add(Vec16 a, Vec16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
BATON_INLINE Vec16 fma(Vec16 a, Vec16 b, Vec16 c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
BATON_INLINE void load_pair(const uint16_t* p, Vec16& even, Vec16& odd) {
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xFFFF0000U));
  const __m256i lo = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const __m256i hi = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 16));
  even = {_mm256_castsi256_ps(_mm256_slli_epi32(lo, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(hi, 16))};
  odd = {_mm256_castsi256_ps(_mm256_and_si256(lo, mask)), _mm256_castsi256_ps(_mm256_and_si256(hi, mask))};
}

#endif

}  // namespace baton::cpu::BATON_ISA_NAMESPACE
