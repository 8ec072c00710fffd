// The ops of block drafters against plain loops in double, over shapes, types and instruction sets; and rows independent of their batch.
#include <map>

#include "ops/cpu/test_support.h"

namespace baton::cpu {
namespace {

using testing::machine_isas;
using testing::OpRunner;
using testing::Random;
using testing::relative_error;
using testing::view;

// ---------------------------------------------------------------------------------------------------------------------- window attention

struct WindowCase {
  int64_t heads, kv_heads, dim, block;
  int32_t window;
  DType dtype = DType::kF32;  // of the ring
};

// Sequences with as many committed tokens as `lengths` say, their rings written in launches of uneven sizes, and a block each.
class WindowSetup {
 public:
  WindowSetup(const WindowCase& c, std::vector<int32_t> lengths, uint32_t seed) : c_(c), lengths_(std::move(lengths)), random_(seed) {
    layout_ = {.kv_heads = c.kv_heads, .dim = c.dim, .slot_offset = 64, .window = c.window, .dtype = c.dtype};
    stride_ = align_up(layout_.slot_offset + layout_.bytes() + 64, 256);
    slots_.assign(static_cast<size_t>(stride_) * lengths_.size(), std::byte{0x5A});
    q_norm_ = random_.normal(c.dim);
    k_norm_ = random_.normal(c.dim);
    for (const int32_t n : lengths_) {
      keys_.push_back(random_.normal(n * c.kv_heads * c.dim));
      values_.push_back(random_.normal(n * c.kv_heads * c.dim));
    }
    const auto m = static_cast<int64_t>(lengths_.size()) * c.block;
    q_ = random_.normal(m * c.heads * c.dim);
    key_ = random_.normal(m * c.kv_heads * c.dim);
    value_ = random_.normal(m * c.kv_heads * c.dim);
  }

  // Rows [first, first + count) of a sequence, of which `committed` are.
  void write(OpRunner& runner, size_t sequence, int32_t first, int32_t count, int32_t committed) {
    const ops::SequenceRows rows{0, count, first, static_cast<int32_t>(sequence), 0};
    std::vector<int32_t> owner(static_cast<size_t>(count), 0);
    std::vector<int32_t> positions;
    for (int32_t i = 0; i < count; ++i) positions.push_back(first + i);
    const auto part = [&](std::vector<float>& x) { return view(x, lengths_[sequence]).row_range(first, count); };
    ops::WindowWriteParams p{.batch = {&rows, 1, count, owner.data(), positions.data()},
                             .counts = committed == count ? nullptr : &committed,
                             .key = part(keys_[sequence]),
                             .value = part(values_[sequence]),
                             .norm = k_norm_.data(),
                             .eps = kEps,
                             .rotary = {kTheta},
                             .slots = {slots_.data(), stride_},
                             .layout = layout_};
    runner.run(runner.ops().window_write, p);
  }
  void write_all(OpRunner& runner, int32_t step) {
    for (size_t s = 0; s < lengths_.size(); ++s)
      for (int32_t t = 0; t < lengths_[s]; t += step) {
        const int32_t n = std::min(step, lengths_[s] - t);
        write(runner, s, t, n, n);
      }
  }

  std::vector<float> attend(OpRunner& runner, size_t first, size_t count) {
    std::vector<ops::SequenceRows> sequences;
    std::vector<int32_t> owner, positions;
    const auto block = static_cast<int32_t>(c_.block);
    for (size_t s = first; s < first + count; ++s) {
      sequences.push_back({static_cast<int32_t>(owner.size()), block, lengths_[s], static_cast<int32_t>(s), 1});
      for (int32_t i = 0; i < block; ++i) {
        owner.push_back(static_cast<int32_t>(s - first));
        positions.push_back(lengths_[s] + i);
      }
    }
    const auto m = static_cast<int64_t>(owner.size());
    const auto all = static_cast<int64_t>(lengths_.size()) * c_.block;
    const auto part = [&](std::vector<float>& x) { return view(x, all).row_range(static_cast<int64_t>(first) * c_.block, m); };
    std::vector<float> out(static_cast<size_t>(m * c_.heads * c_.dim));
    ops::WindowAttendParams p{
        .batch = {sequences.data(), static_cast<int32_t>(count), static_cast<int32_t>(m), owner.data(), positions.data()},
        .block = c_.block,
        .q = part(q_),
        .key = part(key_),
        .value = part(value_),
        .heads = c_.heads,
        .q_norm = q_norm_.data(),
        .k_norm = k_norm_.data(),
        .eps = kEps,
        .rotary = {kTheta},
        .slots = {slots_.data(), stride_},
        .layout = layout_,
        .out = view(out, m)};
    runner.run(runner.ops().window_attend, p);
    return out;
  }

  // The same in double from the inputs alone.
  std::vector<double> expected() const {
    std::vector<double> out;
    const int64_t dim = c_.dim;
    for (size_t s = 0; s < lengths_.size(); ++s) {
      const int64_t length = lengths_[s];
      for (int64_t i = 0; i < c_.block; ++i) {
        const int64_t r = static_cast<int64_t>(s) * c_.block + i;
        for (int64_t h = 0; h < c_.heads; ++h) {
          const int64_t g = h / (c_.heads / c_.kv_heads);
          const std::vector<double> q = vector(&q_[static_cast<size_t>((r * c_.heads + h) * dim)], q_norm_, length + i);
          std::vector<double> weights, sum(static_cast<size_t>(dim));
          double norm = 0;
          const auto visit = [&](const float* key, const float* value, int64_t position, bool stored) {
            std::vector<double> k = vector(key, k_norm_, position);
            double z = 0;
            for (int64_t j = 0; j < dim; ++j) z += q[static_cast<size_t>(j)] * rounded(k[static_cast<size_t>(j)], stored);
            const double w = std::exp(z / std::sqrt(static_cast<double>(dim)));
            norm += w;
            for (int64_t j = 0; j < dim; ++j) sum[static_cast<size_t>(j)] += w * rounded(value[j], stored);
          };
          for (int64_t t = std::max<int64_t>(0, length - c_.window); t < length; ++t) {
            const auto at = static_cast<size_t>((t * c_.kv_heads + g) * dim);
            visit(&keys_[s][at], &values_[s][at], t, true);
          }
          for (int64_t j = 0; j < c_.block; ++j) {
            const auto at = static_cast<size_t>(((static_cast<int64_t>(s) * c_.block + j) * c_.kv_heads + g) * dim);
            visit(&key_[at], &value_[at], length + j, false);
          }
          for (const double x : sum) out.push_back(x / norm);
        }
      }
    }
    return out;
  }

  std::vector<std::byte>& slots() { return slots_; }

 private:
  static constexpr float kEps = 1e-6F;
  static constexpr float kTheta = 10000;

  double rounded(double x, bool stored) const { return stored && c_.dtype == DType::kBF16 ? to_float(to_bf16(static_cast<float>(x))) : x; }
  static std::vector<double> vector(const float* x, const std::vector<float>& norm, int64_t position) {
    const size_t n = norm.size();
    double square = 0;
    for (size_t j = 0; j < n; ++j) square += double{x[j]} * x[j];
    const double r = 1 / std::sqrt(square / static_cast<double>(n) + double{kEps});
    std::vector<double> y(n);
    for (size_t j = 0; j < n; ++j) y[j] = x[j] * r * norm[j];
    for (size_t j = 0; j < n / 2; ++j) {
      const double angle = static_cast<double>(position) * std::pow(double{kTheta}, -static_cast<double>(j) / static_cast<double>(n / 2));
      const double a = y[j];
      const double b = y[n / 2 + j];
      y[j] = a * std::cos(angle) - b * std::sin(angle);
      y[n / 2 + j] = b * std::cos(angle) + a * std::sin(angle);
    }
    return y;
  }

  WindowCase c_;
  std::vector<int32_t> lengths_;
  Random random_;
  ops::WindowLayout layout_;
  int64_t stride_;
  std::vector<std::byte> slots_;
  std::vector<float> q_norm_, k_norm_;
  std::vector<std::vector<float>> keys_, values_;  // by sequence
  std::vector<float> q_, key_, value_;
};

constexpr WindowCase kWindowCases[] = {{2, 1, 16, 8, 32},  {4, 2, 8, 8, 100}, {3, 3, 10, 5, 7},
                                       {8, 2, 128, 8, 96}, {1, 1, 2, 1, 1},   {2, 1, 16, 8, 32, DType::kBF16}};

// Nothing committed, less than a window, exactly one, and several times around the ring.
std::vector<int32_t> lengths_for(const WindowCase& c) { return {0, 1, c.window - 1, c.window, c.window + 1, 3 * c.window + 5}; }

TEST(WindowAttention, MatchesDouble) {
  for (const Isa isa : machine_isas())
    for (const WindowCase& c : kWindowCases) {
      OpRunner runner(isa);
      WindowSetup setup(c, lengths_for(c), 1);
      setup.write_all(runner, 13);
      // Scores near the edge of two bfloat16 values round either way.
      EXPECT_LT(relative_error(setup.attend(runner, 0, 6), setup.expected()), c.dtype == DType::kF32 ? 2e-5 : 4e-3)
          << c.heads << " heads of " << c.dim << ", window " << c.window << " " << isa_name(isa);
    }
}

TEST(WindowAttention, BitsDependOnNeitherBatchNorThreadsNorLaunches) {
  for (const WindowCase& c : kWindowCases) {
    OpRunner runner(detect_isa(), 3);
    OpRunner alone(detect_isa(), 1);
    WindowSetup setup(c, lengths_for(c), 2);
    WindowSetup other(c, lengths_for(c), 2);
    setup.write_all(runner, 1000);
    other.write_all(alone, 1);
    ASSERT_EQ(setup.slots(), other.slots());
    const std::vector<float> batch = setup.attend(runner, 0, 6);
    std::vector<float> one;
    for (size_t s = 0; s < 6; ++s)
      for (const float x : other.attend(s % 2 == 0 ? runner : alone, s, 1)) one.push_back(x);
    EXPECT_EQ(batch, one);
  }
}

// Rows behind the committed ones leave the ring as it is, and so does a launch that commits none.
TEST(WindowAttention, WritesOnlyWhatIsCommitted) {
  const WindowCase c{2, 1, 16, 8, 16};
  OpRunner runner(detect_isa());
  WindowSetup setup(c, {64}, 3);
  WindowSetup exact(c, {64}, 3);
  int32_t done = 0;
  for (const int32_t committed : {1, 8, 0, 3, 8, 7, 2, 5}) {
    setup.write(runner, 0, done, 8, committed);
    if (committed > 0) exact.write(runner, 0, done, committed, committed);
    done += committed;
    ASSERT_EQ(setup.slots(), exact.slots()) << "after " << done;
  }
}

// --------------------------------------------------------------------------------------------------------------------------- convolution

TEST(BlockConv, MatchesDoubleAndStaysInItsBlock) {
  for (const int64_t group : {1, 4, 16}) {
    for (const int64_t block : {1, 5, 8}) {
      const int64_t d = 48;
      const int64_t m = 4 * block;
      const int64_t groups = d / group;
      Random random(static_cast<uint32_t>(group * 100 + block));
      std::vector<float> x = random.normal(m * d);
      std::vector<float> wide = random.normal(m * 4 * groups);  // two sides; the op sees the second
      const std::vector<float> base = random.normal(2 * d);
      std::vector<float> y(x.size());
      OpRunner runner(detect_isa());
      runner.run(runner.ops().block_conv, {.x = view(x, m),
                                           .base = base.data(),
                                           .dynamic = view(wide, m).columns(2 * groups, 2 * groups),
                                           .groups = groups,
                                           .block = block,
                                           .y = view(y, m)});
      std::vector<double> expected;
      for (int64_t r = 0; r < m; ++r)
        for (int64_t c = 0; c < d; ++c) {
          const auto tap = [&](int64_t o) {
            return double{base[static_cast<size_t>(o * d + c)]} + wide[static_cast<size_t>(r * 4 * groups + (2 + o) * groups + c / group)];
          };
          double z = tap(0) * x[static_cast<size_t>(r * d + c)];
          if (r % block != 0) z += tap(1) * x[static_cast<size_t>((r - 1) * d + c)];
          expected.push_back(z);
        }
      EXPECT_LT(relative_error(y, expected), 1e-6) << "group " << group << " block " << block;
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------------------------- path

struct PathSetup {
  int64_t blocks, steps, vocabulary, rank, top;
  std::vector<float> logits, hidden, predecessor, successor;
  std::vector<int32_t> anchors;

  PathSetup(int64_t b, int64_t s, int64_t v, int64_t r, int64_t t, uint32_t seed) : blocks(b), steps(s), vocabulary(v), rank(r), top(t) {
    Random random(seed);
    logits = random.normal(b * s * v);
    hidden = random.normal(b * s * r);
    predecessor = random.normal(v * r);
    successor = random.normal(v * r);
    for (int64_t i = 0; i < b; ++i) anchors.push_back(static_cast<int32_t>(random.integer(0, v - 1)));
  }
  struct Result {
    std::vector<int32_t> ids, candidates;
    std::vector<float> probabilities;
    bool operator==(const Result&) const = default;
  };
  Result run(OpRunner& runner, const std::vector<ops::DraftPathRow>& rows, int64_t first, int64_t count) {
    Result out;
    out.ids.resize(static_cast<size_t>(count * steps));
    out.candidates.resize(static_cast<size_t>(count * steps * top));
    out.probabilities.resize(out.candidates.size());
    runner.run(runner.ops().draft_path, {.logits = view(logits, blocks * steps).row_range(first * steps, count * steps),
                                         .hidden = view(hidden, blocks * steps).row_range(first * steps, count * steps),
                                         .predecessor = view(predecessor, vocabulary),
                                         .successor = view(successor, vocabulary),
                                         .anchors = anchors.data() + first,
                                         .rows = rows.empty() ? nullptr : rows.data() + first,
                                         .steps = steps,
                                         .top = top,
                                         .ids = out.ids.data(),
                                         .candidates = out.candidates.data(),
                                         .probabilities = out.probabilities.data()});
    return out;
  }
  double score(int64_t row, int32_t before, int32_t token) const {
    double s = logits[static_cast<size_t>(row * vocabulary + token)];
    for (int64_t j = 0; j < rank; ++j)
      s += double{predecessor[static_cast<size_t>(before * rank + j)]} * hidden[static_cast<size_t>(row * rank + j)] *
           successor[static_cast<size_t>(token * rank + j)];
    return s;
  }
};

TEST(DraftPath, WalksGreedilyThroughTheMostLikelyTokens) {
  for (const int64_t vocabulary : {5, 16, 1000}) {
    PathSetup setup(6, 7, vocabulary, 12, 16, static_cast<uint32_t>(vocabulary));
    OpRunner runner(detect_isa());
    const PathSetup::Result got = setup.run(runner, {}, 0, 6);
    for (int64_t b = 0; b < 6; ++b) {
      int32_t before = setup.anchors[static_cast<size_t>(b)];
      for (int64_t i = 0; i < 7; ++i) {
        const int64_t r = b * 7 + i;
        std::vector<std::pair<float, int32_t>> order;
        for (int32_t t = 0; t < vocabulary; ++t) order.emplace_back(-setup.logits[static_cast<size_t>(r * vocabulary + t)], t);
        std::sort(order.begin(), order.end());
        int32_t best = -1;
        double best_score = -INFINITY;
        for (int64_t c = 0; c < 16; ++c) {
          const int32_t expected = c < vocabulary ? order[static_cast<size_t>(c)].second : -1;
          ASSERT_EQ(got.candidates[static_cast<size_t>(r * 16 + c)], expected);
          if (expected < 0) continue;
          const double s = setup.score(r, before, expected);
          if (s > best_score) best_score = s, best = expected;
        }
        ASSERT_EQ(got.ids[static_cast<size_t>(r)], best);
        before = best;
      }
    }
  }
}

TEST(DraftPath, DrawsWhatItSaysItDraws) {
  const int64_t draws = 20'000;
  PathSetup setup(1, 1, 40, 4, 8, 7);
  OpRunner runner(detect_isa());
  std::map<int32_t, int64_t> seen;
  PathSetup::Result last;
  for (int64_t i = 0; i < draws; ++i) {
    last = setup.run(runner, {{.temperature = 0.8F, .seed = static_cast<uint64_t>(i), .position = 3, .stream = 1}}, 0, 1);
    ++seen[last.ids[0]];
  }
  double chi_square = 0;
  double sum = 0;
  for (size_t c = 0; c < 8; ++c) {
    double total = 0;
    for (size_t other = 0; other < 8; ++other)
      total += std::exp((setup.score(0, setup.anchors[0], last.candidates[other]) - setup.score(0, setup.anchors[0], last.candidates[c])) /
                        0.8F);
    EXPECT_NEAR(last.probabilities[c], 1 / total, 1e-5);
    const double expected = last.probabilities[c] * static_cast<double>(draws);
    const double difference = static_cast<double>(seen[last.candidates[c]]) - expected;
    chi_square += difference * difference / expected;
    sum += last.probabilities[c];
  }
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_LT(chi_square, 24.3);  // 7 degrees of freedom, one in a thousand; the seeds are fixed
}

// In the target's stream a draft is what the target draws where both see the same scores; in another it is not.
TEST(DraftPath, SharesTheNoiseOfTheTarget) {
  PathSetup setup(1, 1, 30, 4, 30, 9);
  std::fill(setup.successor.begin(), setup.successor.end(), 0.0F);  // scores are the logits
  OpRunner runner(detect_isa());
  int64_t other = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const ops::SamplingRow row{.temperature = 1.3F, .seed = seed, .position = 17};
    int32_t token = -1;
    runner.run(runner.ops().sample, {.logits = view(setup.logits, 1), .rows = &row, .ids = &token});
    EXPECT_EQ(setup.run(runner, {{.temperature = 1.3F, .seed = seed, .position = 17}}, 0, 1).ids[0], token);
    other += setup.run(runner, {{.temperature = 1.3F, .seed = seed, .position = 17, .stream = 1}}, 0, 1).ids[0] != token ? 1 : 0;
  }
  EXPECT_GT(other, 100);
}

TEST(DraftPath, ABlockDoesNotDependOnItsBatch) {
  PathSetup setup(9, 7, 300, 32, 16, 11);
  OpRunner runner(detect_isa(), 3);
  OpRunner alone(detect_isa(), 1);
  std::vector<ops::DraftPathRow> rows;
  for (int32_t b = 0; b < 9; ++b) rows.push_back({.temperature = b % 3 == 0 ? 0 : 1.0F, .seed = 5, .position = 10 * b});
  PathSetup::Result one;
  for (int64_t b = 0; b < 9; ++b) {
    const PathSetup::Result r = setup.run(alone, rows, b, 1);
    one.ids.insert(one.ids.end(), r.ids.begin(), r.ids.end());
    one.candidates.insert(one.candidates.end(), r.candidates.begin(), r.candidates.end());
    one.probabilities.insert(one.probabilities.end(), r.probabilities.begin(), r.probabilities.end());
  }
  EXPECT_EQ(setup.run(runner, rows, 0, 9), one);
}

TEST(DraftPath, SurvivesLogitsThatAreNotNumbers) {
  PathSetup setup(1, 3, 20, 4, 4, 13);
  setup.logits[25] = NAN;
  OpRunner runner(detect_isa());
  const PathSetup::Result got = setup.run(runner, {}, 0, 1);
  EXPECT_EQ(got.ids[1], 0);
  EXPECT_EQ(got.candidates[4], -1);
  EXPECT_EQ(got.probabilities[4], 0);
  EXPECT_GE(got.ids[2], 0);
}

}  // namespace
}  // namespace baton::cpu
