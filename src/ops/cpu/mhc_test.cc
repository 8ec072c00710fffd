#include "ops/cpu/test_support.h"

namespace baton::cpu::testing {
namespace {

struct Site {
  int64_t m, s, d;
  std::vector<float> streams, y, fn, base, scale, norm;
  std::vector<float> post, comb, x;
  std::vector<std::byte> packed;

  Site(Random& random, OpRunner& runner, int64_t rows, int64_t stream_count, int64_t width)
      : m(rows), s(stream_count), d(width), streams(random.normal(m * s * d)), y(random.normal(m * d)),
        fn(random.normal((2 + s) * s * s * d, 1.0F / std::sqrt(static_cast<float>(s * d)))), base(random.normal((2 + s) * s)),
        scale(random.normal(3)), norm(random.normal(d)), post(static_cast<size_t>(m * s)), comb(static_cast<size_t>(m * s * s)),
        x(static_cast<size_t>(m * d)) {
    const int64_t n = (2 + s) * s;
    packed.resize(static_cast<size_t>(runner.backend().weight_bytes(DType::kF32, n, s * d)));
    runner.backend().store_weight(packed.data(), {fn.data(), DType::kF32, n, s * d, s * d});
  }
  ops::MhcMixParams params() {
    ops::MhcMixParams p;
    p.streams = view(streams, m);
    p.stream_count = s;
    p.fn = {packed.data(), nullptr, DType::kF32, (2 + s) * s, s * d};
    p.base = base.data();
    p.scale = scale.data();
    p.norm_weight = norm.data();
    p.norm_eps = 1e-5F;
    p.hc_eps = 1e-6F;
    p.sinkhorn_iterations = 20;
    p.to = {view(post, m), view(comb, m)};
    p.x = view(x, m);
    return p;
  }
};

TEST(Mhc, CombIsDoublyStochastic) {
  for (const Isa isa : machine_isas()) {
    for (const int64_t s : {2, 3, 4}) {
      Random random(static_cast<uint32_t>(11 + s));
      OpRunner runner(isa);
      Site site(random, runner, 50, s, 64);
      for (float& b : site.base) b *= 0.25F;  // logits of a size for which 20 iterations converge
      for (float& x : site.scale) x *= 0.25F;
      runner.run(runner.ops().mhc_mix, site.params());
      for (int64_t r = 0; r < site.m; ++r) {
        for (int64_t i = 0; i < s; ++i) {
          double row = 0;
          double column = 0;
          for (int64_t j = 0; j < s; ++j) {
            row += site.comb[static_cast<size_t>((r * s + i) * s + j)];
            column += site.comb[static_cast<size_t>((r * s + j) * s + i)];
          }
          EXPECT_NEAR(column, 1, 2e-6) << isa_name(isa);  // the last operation normalises columns
          EXPECT_NEAR(row, 1, 2e-6) << isa_name(isa);
        }
      }
    }
  }
}

TEST(Mhc, MixMatchesTheFormulaInDouble) {
  for (const Isa isa : machine_isas()) {
    Random random(21);
    OpRunner runner(isa);
    Site site(random, runner, 7, 4, 48);
    const int64_t s = 4;
    const int64_t d = 48;
    runner.run(runner.ops().mhc_mix, site.params());
    std::vector<double> x;
    for (int64_t r = 0; r < site.m; ++r) {
      const float* f = &site.streams[static_cast<size_t>(r * s * d)];
      double square = 0;
      for (int64_t i = 0; i < s * d; ++i) square += double{f[i]} * f[i];
      const double inverse = 1 / std::sqrt(square / static_cast<double>(s * d) + 1e-5);
      std::vector<double> u(static_cast<size_t>(d));
      for (int64_t i = 0; i < s; ++i) {
        double z = 0;
        for (int64_t k = 0; k < s * d; ++k) z += double{site.fn[static_cast<size_t>(i * s * d + k)]} * f[k];
        const double pre = 1 / (1 + std::exp(-(z * inverse * site.scale[0] + site.base[static_cast<size_t>(i)]))) + 1e-6;
        for (int64_t c = 0; c < d; ++c) u[static_cast<size_t>(c)] += pre * f[i * d + c];
      }
      double mean = 0;
      for (const double v : u) mean += v * v / static_cast<double>(d);
      for (int64_t c = 0; c < d; ++c) x.push_back(u[static_cast<size_t>(c)] / std::sqrt(mean + 1e-5) * site.norm[static_cast<size_t>(c)]);
    }
    EXPECT_LT(relative_error(site.x, x), 1e-5) << isa_name(isa);
  }
}

TEST(Mhc, ExpandUsesTheTransposedMatrixAndFusingItChangesNoBit) {
  for (const Isa isa : machine_isas()) {
    Random random(31);
    OpRunner runner(isa);
    Site site(random, runner, 9, 4, 40);
    runner.run(runner.ops().mhc_mix, site.params());
    const ops::MhcCoefficients from = site.params().to;
    std::vector<float> apart = site.streams;
    runner.run(runner.ops().mhc_expand, ops::MhcExpandParams{view(apart, site.m), view(site.y, site.m), from, 4});
    std::vector<double> expected;
    for (int64_t r = 0; r < site.m; ++r)
      for (int64_t i = 0; i < 4; ++i)
        for (int64_t c = 0; c < site.d; ++c) {
          double sum = double{site.post[static_cast<size_t>(r * 4 + i)]} * site.y[static_cast<size_t>(r * site.d + c)];
          for (int64_t j = 0; j < 4; ++j)
            sum +=
                double{site.comb[static_cast<size_t>((r * 4 + j) * 4 + i)]} * site.streams[static_cast<size_t>((r * 4 + j) * site.d + c)];
          expected.push_back(sum);
        }
    EXPECT_LT(relative_error(apart, expected), 1e-6) << isa_name(isa);

    ops::MhcMixParams fused = site.params();
    fused.y = view(site.y, site.m);
    fused.from = fused.to;  // aliased, as the model does
    runner.run(runner.ops().mhc_mix, fused);
    EXPECT_EQ(site.streams, apart) << isa_name(isa);
    const std::vector<float> x = site.x;
    site.streams = apart;
    runner.run(runner.ops().mhc_mix, site.params());
    EXPECT_EQ(site.x, x) << isa_name(isa);
  }
}

TEST(Mhc, WithoutANormWeightTheMeanOfTheStreamsIsLeft) {
  for (const Isa isa : machine_isas()) {
    Random random(5);
    OpRunner runner(isa);
    Site site(random, runner, 5, 4, 40);
    runner.run(runner.ops().mhc_final,
               ops::MhcFinalParams{.streams = view(site.streams, site.m), .stream_count = 4, .h = view(site.x, site.m)});
    std::vector<double> expected;
    for (int64_t r = 0; r < site.m; ++r)
      for (int64_t c = 0; c < site.d; ++c) {
        double sum = 0;
        for (int64_t i = 0; i < 4; ++i) sum += site.streams[static_cast<size_t>((r * 4 + i) * site.d + c)];
        expected.push_back(sum / 4);
      }
    EXPECT_LT(relative_error(site.x, expected), 1e-6) << isa_name(isa);
  }
}

TEST(Mhc, ZeroRowsAreNothing) {
  Random random(1);
  OpRunner runner(detect_isa());
  Site site(random, runner, 0, 4, 16);
  runner.run(runner.ops().mhc_mix, site.params());
}

}  // namespace
}  // namespace baton::cpu::testing
