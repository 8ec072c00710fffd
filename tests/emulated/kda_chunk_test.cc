// The first kernel of chunked KDA, run on the CPU from its own source; the walk over its record is done here, in double.
#include "ops/cuda/kda/chunk_prepare.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace baton::cuda::kda {

// The kernel's dynamic shared memory.
alignas(1024) std::byte shared_memory[sizeof(PrepareShared)];

namespace {

constexpr int kHeads = 8;
constexpr int kWidth = kHeads * kDim;
constexpr int kColumns = 4 * kWidth + kHeads;

struct Problem {
  std::mt19937 random;
  std::normal_distribution<float> normal;
  int head;
  int rows;
  std::vector<bf16> inputs, window;
  std::vector<float> conv, a_log, bias;
  std::vector<double> state;

  Problem(unsigned seed, int row_count, float scale, bool saturated)
      : random(seed), head(static_cast<int>(seed) % kHeads), rows(row_count) {
    const auto rounded = [&](size_t n) {
      std::vector<bf16> v(n);
      for (bf16& x : v) x = to_bf16(scale * normal(random));
      return v;
    };
    const auto values = [&](size_t n, float s) {
      std::vector<float> v(n);
      for (float& x : v) x = s * normal(random);
      return v;
    };
    inputs = rounded(static_cast<size_t>(rows) * kColumns);
    window = rounded(9 * kWidth);
    conv = values(3 * kWidth * 4, 0.5F);
    a_log = values(kHeads, 0.5F);
    bias = values(kWidth, 1.0F);
    if (saturated)
      for (size_t i = 0; i < bias.size(); ++i) bias[i] = i % 3 == 0 ? 40.0F : i % 3 == 1 ? -40.0F : 0.0F;
    for (int i = 0; i < kDim * kDim; ++i) state.push_back(static_cast<double>(0.3F * normal(random)));
  }
  // Part 0 ... 2: q^, k^, v^, from row -3 on; part 3: a.
  double raw(int t, int part, int channel) const {
    const int column = part * kWidth + head * kDim + channel;
    return static_cast<double>(t < 0 ? to_float(window[static_cast<size_t>((t + 3) * 3 * kWidth + column)])
                                     : to_float(inputs[static_cast<size_t>(t * kColumns + column)]));
  }
  double beta(int t) const {
    return 1 / (1 + std::exp(-static_cast<double>(to_float(inputs[static_cast<size_t>(t * kColumns + 4 * kWidth + head)]))));
  }
};

using Rows = std::vector<std::vector<double>>;

// Token by token; advances `s`.
Rows recurrence(const Problem& p, std::vector<double>& s) {
  Rows out;
  for (int t = 0; t < p.rows; ++t) {
    double x[3][kDim];
    double square[3] = {1e-6, 1e-6, 1e-6};
    for (int part = 0; part < 3; ++part)
      for (int c = 0; c < kDim; ++c) {
        double y = 0;
        for (int j = 0; j < 4; ++j)
          y += static_cast<double>(p.conv[static_cast<size_t>((part * kWidth + p.head * kDim + c) * 4 + j)]) * p.raw(t - 3 + j, part, c);
        x[part][c] = y / (1 + std::exp(-y));
        square[part] += x[part][c] * x[part][c];
      }
    std::vector<double> delta(x[2], x[2] + kDim);
    std::vector<double> o(kDim);
    for (int c = 0; c < kDim; ++c) {
      const auto channel = static_cast<size_t>(p.head * kDim + c);
      const double a = p.raw(t, 3, c) + static_cast<double>(p.bias[channel]);
      const double decay = std::exp(-5 / (1 + std::exp(-std::exp(static_cast<double>(p.a_log[static_cast<size_t>(p.head)])) * a)));
      x[0][c] /= std::sqrt(square[0] * kDim);
      x[1][c] /= std::sqrt(square[1]);
      for (int v = 0; v < kDim; ++v) {
        double& e = s[static_cast<size_t>(c * kDim + v)];
        e *= decay;
        delta[static_cast<size_t>(v)] -= e * x[1][c];
      }
    }
    for (int c = 0; c < kDim; ++c)
      for (int v = 0; v < kDim; ++v) {
        double& e = s[static_cast<size_t>(c * kDim + v)];
        e += x[1][c] * p.beta(t) * delta[static_cast<size_t>(v)];
        o[static_cast<size_t>(v)] += e * x[0][c];
      }
    out.push_back(o);
  }
  return out;
}

double element(const void* rows, int row_bytes, int t, int c) {
  bf16 v{};
  std::memcpy(&v, static_cast<const std::byte*>(rows) + t * row_bytes + ((c / 8) ^ (t % 8)) * 16 + c % 8 * 2, 2);
  return static_cast<double>(to_float(v));
}
double as_bf16(double x) { return static_cast<double>(to_float(to_bf16(static_cast<float>(x)))); }

// What chunk_scan does with a record; advances `s`.
Rows walk(const ChunkRecord& r, int rows, std::vector<double>& s) {
  Rows w(kChunk, std::vector<double>(kDim));
  Rows out(static_cast<size_t>(rows), std::vector<double>(kDim));
  for (int v = 0; v < kDim; ++v) {
    for (int t = 0; t < kChunk; ++t) {
      double read = 0;
      for (int c = 0; c < kDim; ++c) read += element(r.w, kDim * 2, t, c) * as_bf16(s[static_cast<size_t>(c * kDim + v)]);
      w[static_cast<size_t>(t)][static_cast<size_t>(v)] =
          as_bf16(static_cast<double>(r.r[t]) * (element(r.u[v / 64], kDim, t, v % 64) - read));
    }
    for (int t = 0; t < rows; ++t) {
      double o = 0;
      for (int c = 0; c < kDim; ++c) o += element(r.q, kDim * 2, t, c) * as_bf16(s[static_cast<size_t>(c * kDim + v)]);
      for (int j = 0; j <= t; ++j) o += element(r.qk, kChunk * 2, t, j) * w[static_cast<size_t>(j)][static_cast<size_t>(v)];
      out[static_cast<size_t>(t)][static_cast<size_t>(v)] = o * static_cast<double>(r.s[t]);
    }
    for (int c = 0; c < kDim; ++c) {
      double& e = s[static_cast<size_t>(c * kDim + v)];
      e *= static_cast<double>(r.decay[c]);
      for (int t = 0; t < kChunk; ++t) e += element(r.ends, kDim * 2, t, c) * w[static_cast<size_t>(t)][static_cast<size_t>(v)];
    }
  }
  return out;
}

void check(unsigned seed, int rows, int position, float scale, bool saturated) {
  SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(rows) + " rows");
  Problem p(seed, rows, scale, saturated);
  const ops::SequenceRows sequence{0, rows, position, 0, 0};
  std::vector<ChunkRecord> records(kHeads);
  std::memset(static_cast<void*>(records.data()), 0xFF, records.size() * sizeof(ChunkRecord));
  std::memset(shared_memory, 0xFF, sizeof(shared_memory));
  emulated::shared = shared_memory;
  ChunkParams params;
  params.base.sequences = &sequence;
  params.base.sequence_count = 1;
  params.base.heads = kHeads;
  params.base.inputs = p.inputs.data();
  params.base.input_stride = kColumns;
  params.base.conv = p.conv.data();
  params.base.a_log = p.a_log.data();
  params.base.dt_bias = p.bias.data();
  params.base.lower_bound_log2 = -5 * kLog2e;
  params.base.slots = reinterpret_cast<std::byte*>(p.window.data());
  params.slab_chunks = 1;
  params.records = records.data();
  emulated::run_block(kPrepareThreads, static_cast<unsigned>(p.head), [&] { chunk_prepare(params); });

  std::vector<double> expected_state = p.state;
  const Rows expected = recurrence(p, expected_state);
  std::vector<double> state = p.state;
  const Rows found = walk(records[static_cast<size_t>(p.head)], rows, state);
  double typical = 0;
  for (const auto& row : expected)
    for (const double e : row) typical += e * e / rows;
  for (size_t t = 0; t < expected.size(); ++t) {
    double error = 0;
    double size = 0;
    for (size_t v = 0; v < kDim; ++v) {
      error += (found[t][v] - expected[t][v]) * (found[t][v] - expected[t][v]);
      size += expected[t][v] * expected[t][v];
    }
    EXPECT_LT(std::sqrt(error / std::max(typical, size)), 1.2e-2) << "row " << t;
  }
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < state.size(); ++i) {
    error += (state[i] - expected_state[i]) * (state[i] - expected_state[i]);
    norm += expected_state[i] * expected_state[i];
  }
  EXPECT_LT(std::sqrt(error / norm), 8e-3);
}

TEST(EmulatedKdaChunk, WholeChunkAgreesWithTheRecurrence) {
  for (const unsigned seed : {1U, 5U, 19U}) check(seed, 64, 0, 1.0F, false);
}
TEST(EmulatedKdaChunk, PartOfAChunkBehindAnEdge) {
  check(2, 50, 0, 1.0F, false);
  check(3, 44, 20, 1.0F, false);
  check(4, 9, 55, 1.0F, false);
}
// Decays at their bound: neighbours over the edge of a block of 32 still matter, and scales leave the range if they are not combined first.
TEST(EmulatedKdaChunk, SteepAndSaturatedGates) {
  for (const unsigned seed : {6U, 7U}) check(seed, 64, 64, 30.0F, false);
  check(8, 64, 0, 1.0F, true);
}

}  // namespace
}  // namespace baton::cuda::kda
