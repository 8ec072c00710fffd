// Random KDA problems in slots, and what ops/kda.h says of them, in double.
#pragma once

#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "ops/cuda/kda/decode_params.h"
#include "tensor/number.h"
#include "tests/gpu/gpu_support.cuh"

namespace baton::gpu_test {

inline constexpr int64_t kKdaDim = 128;

struct KdaSequence {
  int32_t rows = 0;
  int32_t verify = 0;
  int32_t fold = 0;
  int32_t position = 0;
};

// Where one layer lies in a slot: ops::KdaSlotLayout (whose header nvcc cannot read).
struct KdaLayout {
  int64_t state_offset = 0;
  int64_t window_offset = 0;
  int64_t ring_offset = 0;
  int32_t ring_rows = 0;
};

struct KdaCase {
  std::string name;
  int64_t heads = 8;
  DType state = DType::kF32;
  std::vector<KdaSequence> sequences;
  std::string values = "normal";  // normal, closed (gates at their bounds), zeros, large
  uint64_t seed = 1;
  int32_t ring_rows = 8;
  int64_t padding = 0;  // of rows, elements
};

inline int64_t align_up_64(int64_t n) { return (n + 63) / 64 * 64; }

// Weights, slots and rows on the host. Slot i of the pool belongs to sequence i, the last one to nobody.
struct KdaProblem {
  KdaCase c;
  int64_t width = 0;
  int64_t columns = 0;  // of a row of inputs
  int64_t rows = 0;
  int64_t slot_bytes = 0;
  int64_t count_offset = 0;
  KdaLayout layout;
  std::vector<float> conv, a_log, dt_bias, o_norm;
  std::vector<std::byte> pool;
  std::vector<bf16> inputs, gate;

  explicit KdaProblem(const KdaCase& kase) : c(kase), width(kase.heads * kKdaDim), columns(4 * width + kase.heads) {
    for (const auto& s : c.sequences) rows += s.rows;
    const auto values = [&](int64_t n, float scale, uint64_t salt) {
      std::vector<float> v(static_cast<size_t>(n));
      for (size_t i = 0; i < v.size(); ++i) v[i] = scale * normal(c.seed * 0x9E37 + (salt << 40) + i);
      return v;
    };
    conv = values(3 * width * 4, 0.5F, 1);
    a_log = values(c.heads, 0.5F, 2);
    dt_bias = values(width, 1.0F, 3);
    o_norm = values(kKdaDim, 1.0F, 4);
    if (c.values == "closed")
      for (size_t i = 0; i < dt_bias.size(); ++i) dt_bias[i] = i % 3 == 0 ? 40.0F : i % 3 == 1 ? -40.0F : 0.0F;
    layout.ring_rows = c.ring_rows;
    layout.window_offset = align_up_64(width * kKdaDim * dtype_bytes(c.state));
    layout.ring_offset = align_up_64(layout.window_offset + 9 * width * 2);
    count_offset = align_up_64(layout.ring_offset + c.ring_rows * columns * 2);
    slot_bytes = (count_offset + 4 + 255) / 256 * 256;
    pool.resize(static_cast<size_t>(slot_bytes) * (c.sequences.size() + 1));
    parallel_for(static_cast<int64_t>(c.sequences.size()) + 1, [&](int64_t i) {
      std::byte* slot = pool.data() + i * slot_bytes;
      const uint64_t base = c.seed * 0x51ED + (static_cast<uint64_t>(i) << 36);
      for (int64_t j = 0; j < width * kKdaDim; ++j) {
        const float v = c.values == "zeros" ? 0.0F : 0.3F * normal(base + static_cast<uint64_t>(j));
        if (c.state == DType::kF32)
          std::memcpy(slot + j * 4, &v, 4);
        else
          reinterpret_cast<bf16*>(slot)[j] = to_bf16(v);
      }
      auto* rest = reinterpret_cast<bf16*>(slot + layout.window_offset);
      const int64_t n = (slot_bytes - layout.window_offset) / 2;
      for (int64_t j = 0; j < n; ++j) rest[j] = to_bf16(element(base + (uint64_t{1} << 32) + static_cast<uint64_t>(j)));
      const int32_t count = i < static_cast<int64_t>(c.sequences.size()) ? c.sequences[static_cast<size_t>(i)].fold : 0;
      std::memcpy(slot + count_offset, &count, 4);
    });
    inputs.resize(static_cast<size_t>(rows * input_stride()));
    gate.resize(static_cast<size_t>(rows * gate_stride()));
    for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = to_bf16(element(c.seed * 77 + (uint64_t{7} << 40) + i));
    for (size_t i = 0; i < gate.size(); ++i) gate[i] = to_bf16(element(c.seed * 77 + (uint64_t{8} << 40) + i));
  }

  float element(uint64_t i) const {
    const float v = normal(i);
    return c.values == "zeros" ? 0.0F : c.values == "large" ? 30.0F * v : v;
  }
  int64_t input_stride() const { return columns + c.padding; }
  int64_t gate_stride() const { return width + c.padding; }
  int64_t row_begin(size_t sequence) const {
    int64_t r = 0;
    for (size_t i = 0; i < sequence; ++i) r += c.sequences[i].rows;
    return r;
  }
};

// One head of one sequence, token by token.
struct KdaReference {
  const KdaProblem& p;
  int64_t head;
  std::vector<double> state;             // [dim, dim]
  std::vector<std::vector<float>> line;  // q^ k^ v^ of this head, the window first

  KdaReference(const KdaProblem& problem, size_t sequence, int64_t h) : p(problem), head(h), state(static_cast<size_t>(kKdaDim * kKdaDim)) {
    const std::byte* slot = p.pool.data() + static_cast<int64_t>(sequence) * p.slot_bytes;
    for (int64_t i = 0; i < kKdaDim * kKdaDim; ++i) {
      const int64_t at = head * kKdaDim * kKdaDim + i;
      state[static_cast<size_t>(i)] = p.c.state == DType::kF32 ? static_cast<double>(reinterpret_cast<const float*>(slot)[at])
                                                               : static_cast<double>(to_float(reinterpret_cast<const bf16*>(slot)[at]));
    }
    for (int i = 0; i < 3; ++i) push(reinterpret_cast<const bf16*>(slot + p.layout.window_offset) + i * 3 * p.width);
  }
  void push(const bf16* qkv) {
    std::vector<float> row;
    for (int part = 0; part < 3; ++part)
      for (int64_t i = 0; i < kKdaDim; ++i) row.push_back(to_float(qkv[part * p.width + head * kKdaDim + i]));
    line.push_back(row);
  }
  // As a BF16 state does when a launch commits.
  void round_state() {
    if (p.c.state == DType::kF32) return;
    for (double& v : state) v = static_cast<double>(to_float(to_bf16(static_cast<float>(v))));
  }
  // o [dim] before the gated norm. `row`: q^ k^ v^ | a | b.
  double square = 0;  // mean of o^2 of the last step, before the norm
  std::vector<double> step(const bf16* row, const bf16* z) {
    push(row);
    std::vector<double> x(3 * kKdaDim);
    for (int64_t i = 0; i < 3 * kKdaDim; ++i) {
      const int64_t channel = i / kKdaDim * p.width + head * kKdaDim + i % kKdaDim;
      double s = 0;
      for (size_t j = 0; j < 4; ++j)
        s += static_cast<double>(p.conv[static_cast<size_t>(channel * 4) + j]) *
             static_cast<double>(line[line.size() - 4 + j][static_cast<size_t>(i)]);
      x[static_cast<size_t>(i)] = s / (1 + std::exp(-s));
    }
    double* q = x.data();
    double* k = q + kKdaDim;
    const double* v = k + kKdaDim;
    double qq = 1e-6;
    double kk = 1e-6;
    for (int64_t i = 0; i < kKdaDim; ++i) qq += q[i] * q[i], kk += k[i] * k[i];
    const double beta = 1 / (1 + std::exp(-static_cast<double>(to_float(row[4 * p.width + head]))));
    std::vector<double> delta(v, v + kKdaDim);
    for (int64_t i = 0; i < kKdaDim; ++i) {
      q[i] /= std::sqrt(qq * static_cast<double>(kKdaDim));
      k[i] /= std::sqrt(kk);
      const double a = static_cast<double>(to_float(row[3 * p.width + head * kKdaDim + i])) +
                       static_cast<double>(p.dt_bias[static_cast<size_t>(head * kKdaDim + i)]);
      const double g = -5.0 / (1 + std::exp(-std::exp(static_cast<double>(p.a_log[static_cast<size_t>(head)])) * a));
      double* s = &state[static_cast<size_t>(i * kKdaDim)];
      const double decay = std::exp(g);
      for (int64_t j = 0; j < kKdaDim; ++j) {
        s[j] *= decay;
        delta[static_cast<size_t>(j)] -= s[j] * k[i];
      }
    }
    std::vector<double> o(static_cast<size_t>(kKdaDim));
    for (int64_t i = 0; i < kKdaDim; ++i) {
      double* s = &state[static_cast<size_t>(i * kKdaDim)];
      for (int64_t j = 0; j < kKdaDim; ++j) {
        s[j] += k[i] * beta * delta[static_cast<size_t>(j)];
        o[static_cast<size_t>(j)] += s[j] * q[i];
      }
    }
    square = 0;
    for (const double e : o) square += e * e / static_cast<double>(kKdaDim);
    if (z != nullptr)
      for (int64_t j = 0; j < kKdaDim; ++j)
        o[static_cast<size_t>(j)] *= static_cast<double>(p.o_norm[static_cast<size_t>(j)]) / std::sqrt(square + 1e-5) /
                                     (1 + std::exp(-static_cast<double>(to_float(z[head * kKdaDim + j]))));
    return o;
  }
};

}  // namespace baton::gpu_test
