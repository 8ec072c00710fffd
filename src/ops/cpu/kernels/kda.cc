// The parts of KDA that work on one row or one head.
#include <cmath>

#include "ops/cpu/kernels/rows.h"
#include "ops/cpu/kernels/simd.h"
#include "ops/cpu/kernels/vector_math.h"

namespace baton::cpu::BATON_ISA_NAMESPACE {

void kda_conv(const float* x0, const float* x1, const float* x2, const float* x3, const float* w, float* y, int64_t n) {
#pragma omp simd
  for (int64_t c = 0; c < n; ++c) {
    const float s = w[4 * c] * x0[c] + w[4 * c + 1] * x1[c] + w[4 * c + 2] * x2[c] + w[4 * c + 3] * x3[c];
    y[c] = silu(s);
  }
}

void l2_normalise(float* x, float factor, int64_t n) {
  const float r = factor / std::sqrt(dot(x, x, n) + 1e-6F);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) x[i] *= r;
}

void kda_decay(const float* a, const float* bias, float rate, float lower, float* decay, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) decay[i] = exp_approx(lower * sigmoid(rate * (a[i] + bias[i])));
}

namespace {

// A strip of kVectors vector registers wide: state rows stay in the first-level cache while the tokens pass.
template <int kVectors>
void recur_strip(float* state, int64_t dim, int64_t tokens, const float* q, const float* k, const float* v, const float* decay,
                 int64_t stride, const float* beta, int64_t beta_stride, float* o, int64_t o_stride) {
  for (int64_t t = 0; t < tokens; ++t) {
    VecF read[kVectors] = {};
    for (int64_t i = 0; i < dim; ++i) {
      const VecF d = broadcast(decay[t * stride + i]);
      const VecF ki = broadcast(k[t * stride + i]);
      for (int j = 0; j < kVectors; ++j) {
        float* s = state + i * dim + j * kLanes;
        const VecF x = load(s) * d;
        store(s, x);
        read[j] += x * ki;
      }
    }
    VecF delta[kVectors];
    const VecF b = broadcast(beta[t * beta_stride]);
    for (int j = 0; j < kVectors; ++j) delta[j] = b * (load(v + t * stride + j * kLanes) - read[j]);
    VecF out[kVectors] = {};
    for (int64_t i = 0; i < dim; ++i) {
      const VecF ki = broadcast(k[t * stride + i]);
      const VecF qi = broadcast(q[t * stride + i]);
      for (int j = 0; j < kVectors; ++j) {
        float* s = state + i * dim + j * kLanes;
        const VecF x = load(s) + ki * delta[j];
        store(s, x);
        out[j] += x * qi;
      }
    }
    for (int j = 0; j < kVectors; ++j) store(o + t * o_stride + j * kLanes, out[j]);
  }
}

void recur_column(float* state, int64_t dim, int64_t tokens, const float* q, const float* k, const float* v, const float* decay,
                  int64_t stride, const float* beta, int64_t beta_stride, float* o, int64_t o_stride) {
  for (int64_t t = 0; t < tokens; ++t) {
    float read = 0;
    for (int64_t i = 0; i < dim; ++i) {
      state[i * dim] *= decay[t * stride + i];
      read += state[i * dim] * k[t * stride + i];
    }
    const float delta = beta[t * beta_stride] * (v[t * stride] - read);
    float out = 0;
    for (int64_t i = 0; i < dim; ++i) {
      state[i * dim] += k[t * stride + i] * delta;
      out += state[i * dim] * q[t * stride + i];
    }
    o[t * o_stride] = out;
  }
}

}  // namespace

void kda_recur(float* state, int64_t dim, int64_t v0, int64_t v1, int64_t tokens, const float* q, const float* k, const float* v,
               const float* decay, int64_t stride, const float* beta, int64_t beta_stride, float* o, int64_t o_stride) {
  int64_t c = v0;
  for (; c + 4 * kLanes <= v1; c += 4 * kLanes)
    recur_strip<4>(state + c, dim, tokens, q, k, v + c, decay, stride, beta, beta_stride, o + c, o_stride);
  for (; c + kLanes <= v1; c += kLanes)
    recur_strip<1>(state + c, dim, tokens, q, k, v + c, decay, stride, beta, beta_stride, o + c, o_stride);
  for (; c < v1; ++c) recur_column(state + c, dim, tokens, q, k, v + c, decay, stride, beta, beta_stride, o + c, o_stride);
}

void gated_norm(const float* o, const float* w, const float* z, float eps, float* y, int64_t n) {
  const float r = 1.0F / std::sqrt(dot(o, o, n) / static_cast<float>(n) + eps);
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) y[i] = o[i] * r * w[i] * sigmoid(z[i]);
}

}  // namespace baton::cpu::BATON_ISA_NAMESPACE
