#include "ops/cpu/kda_chunk.h"
#include "ops/cpu/test_support.h"

namespace baton::cpu::testing {
namespace {

// The mathematics of ops/kda.h for one head sequence, in double, token by token.
struct Reference {
  int64_t heads, dim;
  std::vector<double> state;
  std::vector<std::vector<double>> history;  // q^ k^ v^ rows

  Reference(int64_t h, int64_t k) : heads(h), dim(k), state(static_cast<size_t>(h * k * k)) {}

  std::vector<double> step(const float* inputs, const float* z, const ops::KdaWeights& w) {
    const int64_t c = heads * dim;
    history.emplace_back(inputs, inputs + 3 * c);
    const auto conv = [&](int64_t channel) {
      double sum = 0;
      for (int64_t j = 0; j < 4; ++j) {
        const int64_t t = static_cast<int64_t>(history.size()) - 4 + j;
        if (t >= 0) sum += double{w.conv[channel * 4 + j]} * history[static_cast<size_t>(t)][static_cast<size_t>(channel)];
      }
      return sum / (1 + std::exp(-sum));
    };
    std::vector<double> out(static_cast<size_t>(c));
    for (int64_t h = 0; h < heads; ++h) {
      std::vector<double> q(static_cast<size_t>(dim));
      std::vector<double> k = q;
      std::vector<double> v = q;
      double qq = 1e-6;
      double kk = 1e-6;
      for (int64_t i = 0; i < dim; ++i) {
        const auto x = static_cast<size_t>(i);
        q[x] = conv(h * dim + i);
        k[x] = conv(c + h * dim + i);
        v[x] = conv(2 * c + h * dim + i);
        qq += q[x] * q[x];
        kk += k[x] * k[x];
      }
      const double beta = 1 / (1 + std::exp(-double{inputs[4 * c + h]}));
      double* s = &state[static_cast<size_t>(h * dim * dim)];
      std::vector<double> delta = v;
      for (int64_t i = 0; i < dim; ++i) {
        const auto x = static_cast<size_t>(i);
        q[x] /= std::sqrt(qq * static_cast<double>(dim));
        k[x] /= std::sqrt(kk);
        const double a = double{inputs[3 * c + h * dim + i]} + w.dt_bias[h * dim + i];
        const double g = w.lower_bound / (1 + std::exp(-std::exp(double{w.a_log[h]}) * a));
        for (int64_t j = 0; j < dim; ++j) {
          s[i * dim + j] *= std::exp(g);
          delta[static_cast<size_t>(j)] -= s[i * dim + j] * k[x];
        }
      }
      std::vector<double> o(static_cast<size_t>(dim));
      double square = 0;
      for (int64_t j = 0; j < dim; ++j) {
        for (int64_t i = 0; i < dim; ++i) {
          s[i * dim + j] += k[static_cast<size_t>(i)] * beta * delta[static_cast<size_t>(j)];
          o[static_cast<size_t>(j)] += s[i * dim + j] * q[static_cast<size_t>(i)];
        }
        square += o[static_cast<size_t>(j)] * o[static_cast<size_t>(j)] / static_cast<double>(dim);
      }
      for (int64_t j = 0; j < dim; ++j)
        out[static_cast<size_t>(h * dim + j)] =
            o[static_cast<size_t>(j)] / std::sqrt(square + w.norm_eps) * w.o_norm[j] / (1 + std::exp(-double{z[h * dim + j]}));
    }
    return out;
  }
};

struct Problem {
  int64_t heads, dim, tokens;
  std::vector<float> inputs, gate, conv, a_log, dt_bias, o_norm;
  ops::KdaWeights weights;
  ops::KdaSlotLayout layout;
  int64_t count_offset = 0;  // in the slot: for a fold
  std::vector<std::byte> slot;

  Problem(Random& random, int64_t h, int64_t k, int64_t t) : heads(h), dim(k), tokens(t) {
    const int64_t c = heads * dim;
    inputs = random.normal(tokens * (4 * c + heads));
    gate = random.normal(tokens * c);
    conv = random.normal(3 * c * 4, 0.5F);
    a_log = random.normal(heads, 0.5F);
    dt_bias = random.normal(c);
    o_norm = random.normal(dim);
    weights = {conv.data(), a_log.data(), dt_bias.data(), o_norm.data(), heads, dim, 1e-5F, -5.0F};
    layout.window_offset = align_up(c * dim * 4, 64);
    layout.ring_offset = align_up(layout.window_offset + 9 * c * 4, 64);
    layout.ring_rows = 8;
    count_offset = align_up(layout.ring_offset + 8 * (4 * c + heads) * 4, 64);
    slot.resize(static_cast<size_t>(count_offset + 4));
  }
  // Rows [first, first + count) as one launch.
  std::vector<float> run(OpRunner& runner, int64_t first, int64_t count, bool verify = false, bool chunked = false,
                         const ops::KdaFoldSource& fold = {}) {
    const ops::SequenceRows sequence{0, static_cast<int32_t>(count), static_cast<int32_t>(first), 0, verify ? 1 : 0};
    std::vector<float> y(static_cast<size_t>(count * heads * dim));
    ops::KdaParams p;
    p.batch.sequences = &sequence;
    p.batch.sequence_count = 1;
    p.batch.row_count = static_cast<int32_t>(count);
    p.inputs = view(inputs, tokens).row_range(first, count);
    p.gate = view(gate, tokens).row_range(first, count);
    p.weights = weights;
    p.slots = {slot.data(), static_cast<int64_t>(slot.size())};
    p.layout = layout;
    p.fold = fold;
    p.chunked = chunked;
    p.y = view(y, count);
    runner.run(runner.ops().kda, p);
    return y;
  }
  std::vector<float> state() const {
    std::vector<float> s(static_cast<size_t>(heads * dim * dim));
    std::memcpy(s.data(), slot.data(), s.size() * 4);
    return s;
  }
};

TEST(Kda, RecurrentFormMatchesDouble) {
  for (const Isa isa : machine_isas()) {
    for (const auto& [heads, dim] : {std::pair<int64_t, int64_t>{1, 8}, {3, 16}, {2, 24}, {2, 128}}) {
      Random random(5);
      OpRunner runner(isa);
      Problem problem(random, heads, dim, 70);
      const std::vector<float> y = problem.run(runner, 0, 70);
      Reference reference(heads, dim);
      std::vector<double> expected;
      for (int64_t t = 0; t < 70; ++t) {
        const std::vector<double> row = reference.step(&problem.inputs[static_cast<size_t>(t * (4 * heads * dim + heads))],
                                                       &problem.gate[static_cast<size_t>(t * heads * dim)], problem.weights);
        expected.insert(expected.end(), row.begin(), row.end());
      }
      EXPECT_LT(relative_error(y, expected), 2e-5) << isa_name(isa) << " " << heads << " x " << dim;
      EXPECT_LT(relative_error(problem.state(), reference.state), 1e-5) << isa_name(isa);
    }
  }
}

TEST(Kda, ChunkedFormAgreesWithinItsBound) {
  for (const int64_t tokens : {1, 2, 63, 64, 65, 130}) {
    Random random(6);
    OpRunner runner(detect_isa());
    Problem recurrent(random, 2, 32, tokens);
    Problem chunked = recurrent;
    chunked.weights = recurrent.weights;
    const std::vector<float> a = recurrent.run(runner, 0, tokens);
    const std::vector<float> b = chunked.run(runner, 0, tokens, false, true);
    EXPECT_LT(relative_error(b, a), 1e-4) << tokens;
    EXPECT_LT(relative_error(chunked.state(), recurrent.state()), 1e-4) << tokens;
  }
}

TEST(Kda, VerifyLeavesStateAloneAndFoldCommitsItsPrefixBitForBit) {
  for (const Isa isa : machine_isas()) {
    for (int32_t accepted = 0; accepted <= 8; ++accepted) {
      Random random(static_cast<uint32_t>(7 + accepted));
      OpRunner runner(isa);
      Problem plain(random, 3, 16, 20);
      Problem verified = plain;
      verified.weights = plain.weights;
      plain.run(runner, 0, 10);
      const std::vector<float> expected = plain.run(runner, 10, accepted);
      verified.run(runner, 0, 10);
      const std::vector<std::byte> before(verified.slot.begin(), verified.slot.begin() + verified.layout.ring_offset);
      std::vector<float> y = verified.run(runner, 10, 8, true);
      EXPECT_EQ(std::vector<std::byte>(verified.slot.begin(), verified.slot.begin() + verified.layout.ring_offset), before);
      y.resize(expected.size());
      EXPECT_EQ(y, expected) << isa_name(isa);
      const int32_t slot = 0;
      ops::KdaFoldParams fold{
          &slot, &accepted, 1, verified.weights, {verified.slot.data(), static_cast<int64_t>(verified.slot.size())}, verified.layout};
      runner.run(runner.ops().kda_fold, fold);
      EXPECT_EQ(std::vector<std::byte>(verified.slot.begin(), verified.slot.begin() + verified.layout.ring_offset),
                std::vector<std::byte>(plain.slot.begin(), plain.slot.begin() + plain.layout.ring_offset))
          << isa_name(isa) << ", accepted " << accepted;
    }
  }
}

// The next cycle's rows with what the last one accepted folded in the same launch, from either source of the count.
TEST(Kda, FoldInTheLaunchOfTheNextRowsIsFoldAndThenThese) {
  for (const bool in_slot : {false, true})
    for (const bool verify : {false, true})
      for (int32_t accepted = 0; accepted <= 8; accepted += accepted == 0 ? 1 : 7)
        for (const int64_t rows : {0, 1, 5}) {
          SCOPED_TRACE(::testing::Message() << accepted << " folded, " << rows << " rows, verify " << verify << ", count in slot "
                                            << in_slot);
          Random random(static_cast<uint32_t>(70 + accepted));
          OpRunner runner(detect_isa());
          Problem apart(random, 3, 16, 23);
          apart.run(runner, 0, 10);
          apart.run(runner, 10, 8, true);
          std::memcpy(apart.slot.data() + apart.count_offset, &accepted, 4);
          Problem together = apart;
          together.weights = apart.weights;
          const int32_t slot = 0;
          const ops::KdaFoldParams fold{
              &slot, &accepted, 1, apart.weights, {apart.slot.data(), static_cast<int64_t>(apart.slot.size())}, apart.layout};
          runner.run(runner.ops().kda_fold, fold);
          const std::vector<float> expected = apart.run(runner, 10 + accepted, rows, verify);
          const ops::KdaFoldSource source{in_slot ? nullptr : &accepted, in_slot ? together.count_offset : -1};
          EXPECT_EQ(together.run(runner, 10 + accepted, rows, verify, false, source), expected);
          EXPECT_EQ(together.slot, apart.slot);
        }
}

}  // namespace
}  // namespace baton::cpu::testing
