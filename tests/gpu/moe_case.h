// Random problems of the expert path and what the CPU expects of every stage, in double where the device sums.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "ops/cuda/moe/config.h"
#include "tensor/number.h"
#include "tests/gpu/gpu_support.cuh"

namespace baton::gpu_test {

struct MoeCase {
  std::string name;
  cuda::moe::Problem problem;
  int32_t first_expert = 0;
  std::string routing = "uniform";  // uniform, zipf, one (all rows choose one expert first), remote (no local choice)
  std::string values = "normal";    // normal, saturated, zeros
  float limit = 10;
  bool shared = true;
  int variant = -1;  // of cuda::moe::Variant; -1: as configure() chooses
  uint64_t seed = 1;
};

// [rows, choices] distinct experts per row.
inline std::vector<int32_t> make_routing(const MoeCase& c) {
  const auto& p = c.problem;
  std::vector<float> log_weight(static_cast<size_t>(p.experts_total), 0.0F);
  if (c.routing == "zipf") {  // popularity 1 / rank, experts in random order of rank
    std::vector<int32_t> order(static_cast<size_t>(p.experts_total));
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](int a, int b) { return mix(c.seed * 7 + a) < mix(c.seed * 7 + b); });
    for (int r = 0; r < p.experts_total; ++r)
      log_weight[static_cast<size_t>(order[static_cast<size_t>(r)])] = -std::log(static_cast<float>(r + 1));
  }
  std::vector<int32_t> ids(static_cast<size_t>(p.rows * p.choices));
  parallel_for(p.rows, [&](int64_t row) {
    std::vector<std::pair<float, int32_t>> key;
    for (int32_t e = 0; e < p.experts_total; ++e) {
      const bool local = e >= c.first_expert && e < c.first_expert + p.experts_local;
      if (c.routing == "remote" && local) continue;
      float k = log_weight[static_cast<size_t>(e)] - std::log(-std::log(unit(c.seed * 1000003 + static_cast<uint64_t>(row) * 4096 + e)));
      if (c.routing == "one" && e == c.first_expert + p.experts_local / 2) k = 1e9F;
      key.emplace_back(k, e);
    }
    std::partial_sort(key.begin(), key.begin() + p.choices, key.end(), std::greater<>());
    for (int j = 0; j < p.choices; ++j) ids[static_cast<size_t>(row * p.choices + j)] = key[static_cast<size_t>(j)].second;
  });
  return ids;
}

inline std::vector<float> make_weights(const MoeCase& c) {
  std::vector<float> w(static_cast<size_t>(c.problem.rows * c.problem.choices));
  for (size_t i = 0; i < w.size(); ++i) w[i] = 2.5F * unit(c.seed * 31 + i) / 4;
  return w;
}

inline std::vector<bf16> make_rows(const MoeCase& c, uint64_t salt) {
  std::vector<bf16> x(static_cast<size_t>(c.problem.rows * c.problem.width));
  parallel_for(c.problem.rows, [&](int64_t r) {
    for (int64_t k = 0; k < c.problem.width; ++k) {
      const auto i = static_cast<uint64_t>(r * c.problem.width + k);
      float v = normal(salt * 0x100000001ULL + i);
      if (c.values == "saturated") v *= (k / 128) % 2 == 0 ? 1e4F : 1e-6F;
      if (c.values == "zeros" && ((k / 128) % 3 == 1 || r % 5 == 2)) v = 0;
      x[static_cast<size_t>(i)] = to_bf16(v);
    }
  });
  return x;
}

// First slot of every expert (padded to 8) and the slot of every (row, choice).
struct ExpectedPlan {
  std::vector<int64_t> begin, count;
  std::vector<int32_t> row_slot;
};
inline ExpectedPlan expected_plan(const MoeCase& c, const std::vector<int32_t>& ids) {
  ExpectedPlan plan;
  const auto local = static_cast<size_t>(c.problem.experts_local);
  plan.count.assign(local, 0);
  plan.begin.assign(local + 1, 0);
  for (const int32_t id : ids)
    if (id >= c.first_expert && id < c.first_expert + c.problem.experts_local) ++plan.count[static_cast<size_t>(id - c.first_expert)];
  for (size_t e = 0; e < local; ++e) plan.begin[e + 1] = plan.begin[e] + (plan.count[e] + 7) / 8 * 8;
  std::vector<int64_t> next(plan.begin.begin(), plan.begin.end() - 1);
  for (const int32_t id : ids) {
    const bool mine = id >= c.first_expert && id < c.first_expert + c.problem.experts_local;
    plan.row_slot.push_back(mine ? static_cast<int32_t>(next[static_cast<size_t>(id - c.first_expert)]++) : -1);
  }
  return plan;
}

struct QuantisedRow {
  std::vector<uint8_t> codes;
  std::vector<float> scales;
};
inline QuantisedRow quantise_row(const bf16* x, int64_t n) {
  QuantisedRow q;
  for (int64_t b = 0; b < n / 128; ++b) {
    float amax = 0;
    for (int i = 0; i < 128; ++i) amax = std::max(amax, std::fabs(to_float(x[b * 128 + i])));
    const float scale = amax > 0 ? amax / 448.0F : 1.0F;
    q.scales.push_back(scale);
    for (int i = 0; i < 128; ++i) q.codes.push_back(to_e4m3(to_float(x[b * 128 + i]) / scale).bits);
  }
  return q;
}

struct DecodeTable {
  float value[256];
  DecodeTable() {
    for (int i = 0; i < 256; ++i) value[i] = to_float(e4m3{static_cast<uint8_t>(i)});
  }
};
inline const DecodeTable kDecodeTable;

// sum over k of row and weight, scales per 128; w is row-major. `magnitude` is the same sum of absolute values: it bounds the noise.
struct Dot {
  double value = 0;
  double magnitude = 0;
};
inline Dot dot_blocks(const uint8_t* row, const float* row_scale, int64_t scale_stride, const uint8_t* w, const float* w_scale, int64_t k) {
  Dot sum;
  for (int64_t b = 0; b < k / 128; ++b) {
    double part = 0;
    double absolute = 0;
    for (int i = 0; i < 128; ++i) {
      const float product = kDecodeTable.value[row[b * 128 + i]] * kDecodeTable.value[w[b * 128 + i]];
      part += product;
      absolute += std::fabs(product);
    }
    const double scale = static_cast<double>(row_scale[b * scale_stride]) * static_cast<double>(w_scale[b]);
    sum.value += part * scale;
    sum.magnitude += absolute * scale;
  }
  return sum;
}

inline double swiglu_reference(double gate, double up, double limit) {
  const double g = std::min(gate, limit);
  const double u = std::clamp(up, -limit, limit);
  return g / (1 + std::exp(-g)) * u;
}

}  // namespace baton::gpu_test
