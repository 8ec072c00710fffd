// The parts of the indexer and of sparse attention that work on one query row.
#include <cmath>

#include "ops/cpu/kernels/rows.h"
#include "ops/cpu/kernels/simd.h"
#include "ops/cpu/kernels/vector_math.h"

namespace baton::cpu::BATON_ISA_NAMESPACE {

void index_scores(const float* q, const float* w, int64_t heads, const float* keys, int64_t count, int64_t dim, float* scores) {
  for (int64_t p = 0; p < count; ++p) {
    const float* key = keys + p * dim;
    float s = 0;
    for (int64_t h = 0; h < heads; ++h) {
      const float z = dot(q + h * dim, key, dim);
      s += w[h] * (z > 0 ? z : 0.0F);
    }
    scores[p] = s;
  }
}

void pool_keys(const float* const* key, const float* const* gamma, const float* ape, int64_t pool, int64_t dim, float* pooled) {
  for (int64_t c = 0; c < dim; ++c) {
    float top = gamma[0][c] + ape[c];
    for (int64_t s = 1; s < pool; ++s) top = std::max(top, gamma[s][c] + ape[s * dim + c]);
    float norm = 0;
    float value = 0;
    for (int64_t s = 0; s < pool; ++s) {
      const float e = exp_approx(gamma[s][c] + ape[s * dim + c] - top);
      norm += e;
      value += e * key[s][c];
    }
    pooled[c] = value / norm;
  }
}

void hadamard(float* x, int64_t n) {
  for (int64_t half = 1; half < n; half *= 2) {
    for (int64_t i = 0; i < n; i += 2 * half) {
      for (int64_t j = i; j < i + half; ++j) {
        const float a = x[j];
        const float b = x[j + half];
        x[j] = a + b;
        x[j + half] = a - b;
      }
    }
  }
  const float r = 1.0F / std::sqrt(static_cast<float>(n));
  for (int64_t i = 0; i < n; ++i) x[i] *= r;
}

namespace {

// kHeads x kKeys dot products at a time: every loaded vector is used several times. The order of each sum is that of one alone.
template <int kHeads, int kKeys>
void score_tile(const float* q, const float* rows, int64_t dim, float scale, float* scores, int64_t score_stride) {
  VecF acc[kHeads][kKeys] = {};
  int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    VecF key[kKeys];
    for (int s = 0; s < kKeys; ++s) key[s] = load(rows + s * dim + i);
    for (int h = 0; h < kHeads; ++h) {
      const VecF x = load(q + h * dim + i);
      for (int s = 0; s < kKeys; ++s) acc[h][s] += x * key[s];
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int s = 0; s < kKeys; ++s) {
      float z = sum(acc[h][s]);
      for (int64_t j = i; j < dim; ++j) z += q[h * dim + j] * rows[s * dim + j];
      scores[h * score_stride + s] = z * scale;
    }
  }
}

template <int kHeads>
void score_heads(const float* q, const float* rows, int64_t count, int64_t dim, float scale, float* scores) {
  int64_t s = 0;
  for (; s + 4 <= count; s += 4) score_tile<kHeads, 4>(q, rows + s * dim, dim, scale, scores + s, count);
  for (; s < count; ++s) score_tile<kHeads, 1>(q, rows + s * dim, dim, scale, scores + s, count);
}

// out[h] += sum_s p[h, s] rows[s], keys in ascending order, one vector column at a time for kHeads heads.
template <int kHeads>
void accumulate(const float* p, const float* rows, int64_t count, int64_t dim, float* out) {
  int64_t i = 0;
  for (; i + 2 * kLanes <= dim; i += 2 * kLanes) {
    VecF acc[kHeads][2];
    for (int h = 0; h < kHeads; ++h) {
      acc[h][0] = load(out + h * dim + i);
      acc[h][1] = load(out + h * dim + i + kLanes);
    }
    for (int64_t s = 0; s < count; ++s) {
      const VecF a = load(rows + s * dim + i);
      const VecF b = load(rows + s * dim + i + kLanes);
      for (int h = 0; h < kHeads; ++h) {
        const VecF w = broadcast(p[h * count + s]);
        acc[h][0] += w * a;
        acc[h][1] += w * b;
      }
    }
    for (int h = 0; h < kHeads; ++h) {
      store(out + h * dim + i, acc[h][0]);
      store(out + h * dim + i + kLanes, acc[h][1]);
    }
  }
  for (; i < dim; ++i)
    for (int h = 0; h < kHeads; ++h) {
      float s0 = out[h * dim + i];
      for (int64_t s = 0; s < count; ++s) s0 += p[h * count + s] * rows[s * dim + i];
      out[h * dim + i] = s0;
    }
}

}  // namespace

void attend_block(const float* q, const float* keys, const float* values, int64_t count, int64_t heads, int64_t dim, float scale,
                  float* max, float* sum, float* out, float* scratch) {
  int64_t h = 0;
  for (; h + 4 <= heads; h += 4) score_heads<4>(q + h * dim, keys, count, dim, scale, scratch + h * count);
  for (; h < heads; ++h) score_heads<1>(q + h * dim, keys, count, dim, scale, scratch + h * count);

  for (h = 0; h < heads; ++h) {
    float* p = scratch + h * count;
    float top = max[h];
    for (int64_t s = 0; s < count; ++s) top = p[s] > top ? p[s] : top;
    if (top > max[h]) {
      const float shrink = sum[h] > 0 ? exp_approx(max[h] - top) : 0.0F;
      max[h] = top;
      sum[h] *= shrink;
      float* o = out + h * dim;
#pragma omp simd
      for (int64_t i = 0; i < dim; ++i) o[i] *= shrink;
    }
#pragma omp simd
    for (int64_t s = 0; s < count; ++s) p[s] = exp_approx(p[s] - top);
    float total = 0;
    for (int64_t s = 0; s < count; ++s) total += p[s];
    sum[h] += total;
  }

  for (h = 0; h + 4 <= heads; h += 4) accumulate<4>(scratch + h * count, values, count, dim, out + h * dim);
  for (; h < heads; ++h) accumulate<1>(scratch + h * count, values, count, dim, out + h * dim);
}

}  // namespace baton::cpu::BATON_ISA_NAMESPACE
