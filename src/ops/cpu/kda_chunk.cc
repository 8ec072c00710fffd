#include "ops/cpu/kda_chunk.h"

#include <algorithm>
#include <cmath>

namespace baton::cpu {

int64_t kda_chunk_scratch_floats(int64_t max_tokens, int64_t dim) { return 2 * max_tokens * dim + 2 * max_tokens * max_tokens; }

void kda_chunk(float* state, int64_t dim, int64_t tokens, const float* q, const float* k, const float* v, const float* decay,
               const float* beta, float* o, float* scratch) {
  float* log_decay = scratch;           // [tokens, dim] cumulative
  float* u = log_decay + tokens * dim;  // [tokens, dim]
  float* kk = u + tokens * dim;         // [tokens, tokens]
  float* qk = kk + tokens * tokens;     // [tokens, tokens]
  for (int64_t i = 0; i < tokens; ++i)
    for (int64_t c = 0; c < dim; ++c) log_decay[i * dim + c] = std::log(decay[i * dim + c]) + (i > 0 ? log_decay[(i - 1) * dim + c] : 0.0F);

  for (int64_t i = 0; i < tokens; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      float a = 0;
      float b = 0;
      for (int64_t c = 0; c < dim; ++c) {
        const float e = std::exp(log_decay[i * dim + c] - log_decay[j * dim + c]) * k[j * dim + c];
        a += k[i * dim + c] * e;
        b += q[i * dim + c] * e;
      }
      kk[i * tokens + j] = beta[i] * a;
      qk[i * tokens + j] = b;
    }
  }

  for (int64_t i = 0; i < tokens; ++i) {
    float* ui = u + i * dim;
    float* oi = o + i * dim;
    std::fill(ui, ui + dim, 0.0F);
    std::fill(oi, oi + dim, 0.0F);
    for (int64_t c = 0; c < dim; ++c) {
      const float e = std::exp(log_decay[i * dim + c]);
      const float kc = k[i * dim + c] * e;
      const float qc = q[i * dim + c] * e;
      for (int64_t x = 0; x < dim; ++x) {
        ui[x] += kc * state[c * dim + x];
        oi[x] += qc * state[c * dim + x];
      }
    }
    for (int64_t x = 0; x < dim; ++x) ui[x] = beta[i] * (v[i * dim + x] - ui[x]);
    for (int64_t j = 0; j < i; ++j)
      for (int64_t x = 0; x < dim; ++x) ui[x] -= kk[i * tokens + j] * u[j * dim + x];
    for (int64_t j = 0; j <= i; ++j)
      for (int64_t x = 0; x < dim; ++x) oi[x] += qk[i * tokens + j] * u[j * dim + x];
  }

  const float* last = log_decay + (tokens - 1) * dim;
  for (int64_t c = 0; c < dim; ++c) {
    float* row = state + c * dim;
    const float whole = std::exp(last[c]);
    for (int64_t x = 0; x < dim; ++x) row[x] *= whole;
    for (int64_t j = 0; j < tokens; ++j) {
      const float e = k[j * dim + c] * std::exp(last[c] - log_decay[j * dim + c]);
      for (int64_t x = 0; x < dim; ++x) row[x] += e * u[j * dim + x];
    }
  }
}

}  // namespace baton::cpu
