// Norms, conversions and mHC mixing of single rows.
#include "ops/cpu/kernels/rows.h"

#include "ops/cpu/kernels/simd.h"
#include "ops/cpu/kernels/vector_math.h"
#include "ops/mhc.h"

namespace baton::cpu::BATON_ISA_NAMESPACE {

void widen(const void* src, DType dtype, float* dst, int64_t n) {
  if (dtype == DType::kF32) {
    std::memcpy(dst, src, static_cast<size_t>(n) * 4);
    return;
  }
  const auto* s = static_cast<const uint16_t*>(src);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) dst[i] = std::bit_cast<float>(static_cast<uint32_t>(s[i]) << 16);
}

void narrow(const float* src, void* dst, DType dtype, int64_t n) {
  if (dtype == DType::kF32) {
    if (src != dst) std::memcpy(dst, src, static_cast<size_t>(n) * 4);
    return;
  }
  auto* d = static_cast<uint16_t*>(dst);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const auto u = std::bit_cast<uint32_t>(src[i]);
    const uint32_t rounded = (u + 0x7FFFU + ((u >> 16) & 1U)) >> 16;
    const uint32_t nan = (u >> 16) | 0x40U;
    d[i] = static_cast<uint16_t>((u & 0x7FFFFFFFU) > 0x7F800000U ? nan : rounded);
  }
}

float sum_squares(const float* x, int64_t n) { return dot(x, x, n); }

float max_abs(const float* x, int64_t n) {
  float m = 0;
#pragma omp simd reduction(max : m)
  for (int64_t i = 0; i < n; ++i) {
    const float a = std::bit_cast<float>(std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFU);
    m = a > m ? a : m;
  }
  return m;
}

void rms_norm(const float* x, const float* w, float eps, float* y, int64_t n) {
  const float r = 1.0F / std::sqrt(dot(x, x, n) / static_cast<float>(n) + eps);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] * r * w[i];
}

void layer_norm(const float* x, const float* w, const float* b, float eps, float* y, int64_t n) {
  float mean = 0;
  for (int64_t i = 0; i < n; ++i) mean += x[i];
  mean /= static_cast<float>(n);
  float variance = 0;
  for (int64_t i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
  const float r = 1.0F / std::sqrt(variance / static_cast<float>(n) + eps);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - mean) * r * w[i] + b[i];
}

void add(float* x, const float* y, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] += y[i];
}

namespace {

template <int kStreams>
void expand_fixed(float* streams, const float* y, const float* post, const float* comb, int64_t d) {
#pragma omp simd
  for (int64_t c = 0; c < d; ++c) {
    float x[kStreams];
    for (int j = 0; j < kStreams; ++j) x[j] = streams[j * d + c];
    for (int i = 0; i < kStreams; ++i) {
      float sum = post[i] * y[c];
      for (int j = 0; j < kStreams; ++j) sum += comb[j * kStreams + i] * x[j];
      streams[i * d + c] = sum;
    }
  }
}

}  // namespace

void mhc_expand(float* streams, const float* y, const float* post, const float* comb, int64_t s, int64_t d) {
  if (s == 4) return expand_fixed<4>(streams, y, post, comb, d);
  if (s == 2) return expand_fixed<2>(streams, y, post, comb, d);
  for (int64_t c = 0; c < d; ++c) {
    float x[ops::kMaxStreams];
    for (int64_t j = 0; j < s; ++j) x[j] = streams[j * d + c];
    for (int64_t i = 0; i < s; ++i) {
      float sum = post[i] * y[c];
      for (int64_t j = 0; j < s; ++j) sum += comb[j * s + i] * x[j];
      streams[i * d + c] = sum;
    }
  }
}

void mhc_collapse(const float* streams, const float* weight, float* u, int64_t s, int64_t d) {
#pragma omp simd
  for (int64_t c = 0; c < d; ++c) u[c] = weight[0] * streams[c];
  for (int64_t i = 1; i < s; ++i) {
    const float w = weight[i];
    const float* x = streams + i * d;
#pragma omp simd
    for (int64_t c = 0; c < d; ++c) u[c] += w * x[c];
  }
}

void clamped_swiglu(const float* gate, const float* up, float limit, float* h, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = gate[i] > limit ? limit : gate[i];
    float u = up[i] > limit ? limit : up[i];
    u = u < -limit ? -limit : u;
    h[i] = silu(g) * u;
  }
}

void sigmoid_rows(float* x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] = sigmoid(x[i]);
}

}  // namespace baton::cpu::BATON_ISA_NAMESPACE
