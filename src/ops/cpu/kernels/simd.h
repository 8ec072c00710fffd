// The vector width of the instruction set that the including file is compiled for, and sums in a fixed order.
// Included only by kernel files, which are compiled once per instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#ifndef BATON_VECTOR_FLOATS
#error "kernel files are compiled through isa_sources()"
#endif

namespace baton::cpu::BATON_ISA_NAMESPACE {

constexpr int64_t kLanes = BATON_VECTOR_FLOATS;

#if BATON_VECTOR_FLOATS > 1
using VecF = float __attribute__((vector_size(BATON_VECTOR_FLOATS * 4), aligned(4), may_alias));
inline VecF load(const float* p) { return *reinterpret_cast<const VecF*>(p); }
inline void store(float* p, VecF v) { *reinterpret_cast<VecF*>(p) = v; }
inline VecF broadcast(float x) { return VecF{} + x; }
// Lanes are added pairwise, halves first.
inline float sum(VecF v) {
  float lanes[kLanes];
  std::memcpy(lanes, &v, sizeof v);
  for (int64_t half = kLanes / 2; half > 0; half /= 2)
    for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}
#else
using VecF = float;
inline VecF load(const float* p) { return *p; }
inline void store(float* p, VecF v) { *p = v; }
inline VecF broadcast(float x) { return x; }
inline float sum(VecF v) { return v; }
#endif

// The order of the sum depends on n alone. The plain loops, the reference, sum in double.
inline float dot(const float* a, const float* b, int64_t n) {
#if BATON_VECTOR_FLOATS == 1
  double total = 0;
  for (int64_t j = 0; j < n; ++j) total += double{a[j]} * double{b[j]};
  return static_cast<float>(total);
#else
  VecF s0{};
  VecF s1{};
  int64_t i = 0;
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) {
    s0 += load(a + i) * load(b + i);
    s1 += load(a + i + kLanes) * load(b + i + kLanes);
  }
  float s = sum(s0 + s1);
  for (; i < n; ++i) s += a[i] * b[i];
  return s;
#endif
}

}  // namespace baton::cpu::BATON_ISA_NAMESPACE
