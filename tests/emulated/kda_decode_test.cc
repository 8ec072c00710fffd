// Fold and verify of KDA with BF16 state, run on the CPU from the kernel's own source, against the recurrence in double.
#include "ops/cuda/kda/decode_bf16.cuh"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace baton::cuda::kda {

// The kernel's dynamic shared memory.
alignas(1024) std::byte shared_memory[sizeof(Bf16Shared)];

namespace {

constexpr int kHeads = 8;
constexpr int kWidth = kHeads * kDim;
constexpr int kColumns = 4 * kWidth + kHeads;
constexpr int64_t kWindowOffset = int64_t{kWidth} * kDim * 2;
constexpr int64_t kRingOffset = kWindowOffset + 9 * kWidth * 2;
constexpr int64_t kCountOffset = kRingOffset + 8 * kColumns * 2;

double number(bf16 x) { return static_cast<double>(to_float(x)); }
double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

struct Problem {
  int head;
  std::vector<bf16> slot, inputs, gate;
  std::vector<float> conv, a_log, bias, norm;

  Problem(unsigned seed, float scale) : head(static_cast<int>(seed) % kHeads) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const auto rounded = [&](size_t n, float s) {
      std::vector<bf16> v(n);
      for (bf16& x : v) x = to_bf16(s * normal(random));
      return v;
    };
    const auto values = [&](size_t n, float s) {
      std::vector<float> v(n);
      for (float& x : v) x = s * normal(random);
      return v;
    };
    slot = rounded(kCountOffset / 2 + 2, scale);
    for (int64_t i = 0; i < kWindowOffset / 2; ++i) slot[static_cast<size_t>(i)] = to_bf16(0.3F * normal(random));
    inputs = rounded(8 * kColumns, scale);
    gate = rounded(8 * kWidth, 1);
    conv = values(3 * kWidth * 4, 0.5F);
    a_log = values(kHeads, 0.5F);
    bias = values(kWidth, 1);
    norm = values(kDim, 1);
  }
};

// The head token by token: its state in double, rows of q^ k^ v^ from the window on.
struct Recurrence {
  const Problem& p;
  std::vector<double> state;
  std::vector<const bf16*> line;  // rows of [q^ k^ v^ | a | b], the window's first

  explicit Recurrence(const Problem& problem) : p(problem) {
    for (int i = 0; i < kDim * kDim; ++i) state.push_back(number(p.slot[static_cast<size_t>(p.head * kDim * kDim + i)]));
    for (int i = 0; i < 3; ++i) line.push_back(&p.slot[kWindowOffset / 2 + i * 3 * kWidth]);
  }
  void round_state() {
    for (double& s : state) s = number(to_bf16(static_cast<float>(s)));
  }
  std::vector<double> step(const bf16* row) {
    line.push_back(row);
    double x[3][kDim];
    double square[3] = {1e-6, 1e-6, 1e-6};
    for (int part = 0; part < 3; ++part)
      for (int c = 0; c < kDim; ++c) {
        const int channel = part * kWidth + p.head * kDim + c;
        double y = 0;
        for (size_t j = 0; j < 4; ++j)
          y += static_cast<double>(p.conv[static_cast<size_t>(channel * 4) + j]) * number(line[line.size() - 4 + j][channel]);
        x[part][c] = y * sigmoid_of(y);
        square[part] += x[part][c] * x[part][c];
      }
    std::vector<double> delta(x[2], x[2] + kDim), o(kDim);
    for (int c = 0; c < kDim; ++c) {
      const double a = number(row[3 * kWidth + p.head * kDim + c]) + static_cast<double>(p.bias[static_cast<size_t>(p.head * kDim + c)]);
      const double decay = std::exp(-5 * sigmoid_of(std::exp(static_cast<double>(p.a_log[static_cast<size_t>(p.head)])) * a));
      x[0][c] /= std::sqrt(square[0] * kDim);
      x[1][c] /= std::sqrt(square[1]);
      for (int v = 0; v < kDim; ++v) {
        double& s = state[static_cast<size_t>(c * kDim + v)];
        s *= decay;
        delta[static_cast<size_t>(v)] -= s * x[1][c];
      }
    }
    const double beta = sigmoid_of(number(row[4 * kWidth + p.head]));
    for (int c = 0; c < kDim; ++c)
      for (int v = 0; v < kDim; ++v) {
        double& s = state[static_cast<size_t>(c * kDim + v)];
        s += x[1][c] * beta * delta[static_cast<size_t>(v)];
        o[static_cast<size_t>(v)] += s * x[0][c];
      }
    return o;
  }
};

void check(unsigned seed, int fold, int rows, bool verify, float scale) {
  SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(fold) + " folded, " + std::to_string(rows) + " rows");
  Problem p(seed, scale);
  const Problem before = p;
  const ops::SequenceRows sequence{0, rows, 100, 0, verify ? 1 : 0};
  std::memcpy(reinterpret_cast<std::byte*>(p.slot.data()) + kCountOffset, &fold, 4);
  std::vector<bf16> y(8 * kWidth, to_bf16(-77));
  DecodeParams d;
  d.sequences = &sequence;
  d.sequence_count = 1;
  d.fold_count_offset = kCountOffset;
  d.heads = kHeads;
  d.inputs = p.inputs.data();
  d.input_stride = kColumns;
  d.gate = p.gate.data();
  d.gate_stride = d.y_stride = kWidth;
  d.y = y.data();
  d.conv = p.conv.data();
  d.a_log = p.a_log.data();
  d.dt_bias = p.bias.data();
  d.o_norm = p.norm.data();
  d.norm_eps = 1e-5F;
  d.lower_bound_log2 = -5 * kLog2e;
  d.slots = reinterpret_cast<std::byte*>(p.slot.data());
  d.window_offset = kWindowOffset;
  d.ring_offset = kRingOffset;
  d.ring_rows = 8;
  d.state_bf16 = true;
  d.prefetch_blocks = 0;
  emulated::shared = shared_memory;
  std::memset(shared_memory, 0xFF, sizeof(shared_memory));
  emulated::run_block(kBf16Threads, static_cast<unsigned>(p.head), [&] { decode_bf16<4>(d); });

  Recurrence r(before);
  for (int t = 0; t < fold; ++t) r.step(&before.slot[kRingOffset / 2 + t * kColumns]);
  r.round_state();
  std::vector<double> committed = r.state;
  for (int t = 0; t < rows; ++t) {
    const std::vector<double> o = r.step(&before.inputs[static_cast<size_t>(t * kColumns)]);
    double square = 0;
    for (const double x : o) square += x * x / kDim;
    double error = 0, size = 1e-12;
    for (int v = 0; v < kDim; ++v) {
      const auto at = static_cast<size_t>(t * kWidth + p.head * kDim + v);
      const double want = o[static_cast<size_t>(v)] / std::sqrt(square + 1e-5) * static_cast<double>(p.norm[static_cast<size_t>(v)]) *
                          sigmoid_of(number(p.gate[at]));
      error += (number(y[at]) - want) * (number(y[at]) - want);
      size += want * want;
    }
    EXPECT_LT(std::sqrt(error / size), 5e-3) << "row " << t;
  }
  for (int t = rows; t < 8; ++t) EXPECT_EQ(number(y[static_cast<size_t>(t * kWidth + p.head * kDim)]), -77) << "row that is not there";
  if (!verify && rows > 0) {
    r.round_state();
    committed = r.state;
  }
  double error = 0, size = 0;
  for (int i = 0; i < kDim * kDim; ++i) {
    const double s = number(p.slot[static_cast<size_t>(p.head * kDim * kDim + i)]);
    error += (s - committed[static_cast<size_t>(i)]) * (s - committed[static_cast<size_t>(i)]);
    size += committed[static_cast<size_t>(i)] * committed[static_cast<size_t>(i)];
  }
  EXPECT_LT(std::sqrt(error / size), 9e-4);
  // Window and ring of this head, bit for bit: rows of the line behind what was committed; the inputs of rows that are verified.
  const size_t last = static_cast<size_t>(fold) + (verify ? 0 : static_cast<size_t>(rows));
  for (size_t i = 0; i < 3; ++i)
    for (int part = 0; part < 3; ++part)
      EXPECT_EQ(std::memcmp(&p.slot[kWindowOffset / 2 + i * 3 * kWidth + static_cast<size_t>(part * kWidth + p.head * kDim)],
                            &r.line[last + i][part * kWidth + p.head * kDim], kDim * 2),
                0)
          << "window row " << i;
  for (int t = 0; t < 8; ++t)
    for (int part = 0; part < 4; ++part) {
      const auto column = static_cast<size_t>(part * kWidth + p.head * kDim);
      const bf16* want = verify && t < rows ? &before.inputs[static_cast<size_t>(t * kColumns) + column]
                                            : &before.slot[kRingOffset / 2 + static_cast<size_t>(t * kColumns) + column];
      EXPECT_EQ(std::memcmp(&p.slot[kRingOffset / 2 + static_cast<size_t>(t * kColumns) + column], want, kDim * 2), 0) << "ring row " << t;
    }
}

TEST(EmulatedKdaDecode, FoldAndVerify) {
  check(1, 8, 8, true, 1);
  check(2, 3, 8, true, 1);
  check(3, 0, 8, true, 1);
  check(4, 1, 5, true, 1);
}
TEST(EmulatedKdaDecode, FoldAloneAndRowsThatAdvance) {
  check(5, 8, 0, true, 1);
  check(6, 5, 0, false, 1);
  check(7, 0, 1, false, 1);
  check(8, 8, 8, false, 1);
  check(9, 2, 3, false, 1);
}
TEST(EmulatedKdaDecode, SteepGates) {
  for (const unsigned seed : {10U, 11U}) check(seed, 8, 8, true, 30);
}

}  // namespace
}  // namespace baton::cuda::kda
