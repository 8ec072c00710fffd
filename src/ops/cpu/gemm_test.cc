// Dense products of every instruction set: against double, against the plain kernels bit by bit, and against themselves in other company.
#include <cstring>

#include "ops/cpu/kernels/gemm_kernels.h"
#include "ops/cpu/weight_test_support.h"

namespace baton::cpu::testing {
namespace {

using ops::ActivationQuant;
using ops::GemmOutput;

struct Case {
  DType x;
  DType w;
  ActivationQuant quant;
};
const std::vector<Case> kCases = {
    {DType::kF32, DType::kF32, ActivationQuant::kNone},         {DType::kF32, DType::kBF16, ActivationQuant::kNone},
    {DType::kF32, DType::kF8E4M3, ActivationQuant::kNone},      {DType::kBF16, DType::kF32, ActivationQuant::kNone},
    {DType::kBF16, DType::kBF16, ActivationQuant::kNone},       {DType::kBF16, DType::kF8E4M3, ActivationQuant::kNone},
    {DType::kF32, DType::kF8E4M3, ActivationQuant::kE4m3Block}, {DType::kBF16, DType::kF8E4M3, ActivationQuant::kE4m3Block},
};
std::string describe(const Case& c, Isa isa) {
  return fmt::format("{} x {}{} on {}", dtype_name(c.x), dtype_name(c.w), c.quant == ActivationQuant::kNone ? "" : " quantised",
                     isa_name(isa));
}

std::vector<float> run_one(OpRunner& runner, const TestMatrix& x, const TestWeight& w, ActivationQuant quant, DType y_type = DType::kF32) {
  TestMatrix y(y_type, x.rows, w.host.rows, std::vector<float>(static_cast<size_t>(x.rows * w.host.rows), -7.0F));
  const GemmOutput out{w.view(), y.view()};
  runner.run(runner.ops().gemm, ops::GemmParams{.x = const_cast<TestMatrix&>(x).view(), .outputs = {&out, 1}, .quant = quant});
  return y.read();
}

TEST(Gemm, MatchesDouble) {
  for (const Isa isa : machine_isas()) {
    OpRunner runner(isa);
    for (const Case& c : kCases) {
      SCOPED_TRACE(describe(c, isa));
      for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{
               {1, 24}, {16, 32}, {24, 192}, {33, 31}, {64, 128}, {65, 129}, {100, 513}, {130, 300}, {300, 96}, {5, 1}, {17, 1027}}) {
        Random random(static_cast<uint32_t>(n * 7919 + k));
        const TestWeight w(random, c.w, n, k);
        for (const int64_t m : {0, 1, 2, 3, 4, 5, 15, 16, 17, 31, 33, 130}) {
          const TestMatrix x(c.x, m, k, random.normal(m * k));
          const std::vector<double> expected = product(x, w, c.quant);
          EXPECT_LT(relative_error(run_one(runner, x, w, c.quant), expected), 2e-6) << "m=" << m << " n=" << n << " k=" << k;
          EXPECT_LT(relative_error(run_one(runner, x, w, c.quant, DType::kBF16), expected), 4.1e-3)
              << "m=" << m << " n=" << n << " k=" << k;
        }
      }
    }
  }
}

// Float arithmetic is defined down to the bit: every instruction set gives what the plain loops give.
TEST(Gemm, FloatProductsAreThoseOfThePlainLoops) {
  OpRunner plain(Isa::kPlain);
  for (const Isa isa : machine_isas()) {
    OpRunner runner(isa);
    for (const Case& c : kCases) {
      if (c.x == DType::kBF16 && c.w != DType::kF32 && gemm_kernels(isa).bf16_strip != nullptr) continue;
      if (c.quant != ActivationQuant::kNone && gemm_kernels(isa).bf16_strip != nullptr) continue;
      SCOPED_TRACE(describe(c, isa));
      for (const auto& [n, k] : std::vector<std::pair<int64_t, int64_t>>{{1, 24}, {24, 192}, {33, 31}, {65, 129}, {100, 1300}}) {
        Random random(static_cast<uint32_t>(n * 7919 + k));
        const TestWeight w(random, c.w, n, k);
        for (const int64_t m : {1, 3, 6, 17}) {
          const TestMatrix x(c.x, m, k, random.normal(m * k));
          EXPECT_EQ(run_one(runner, x, w, c.quant), run_one(plain, x, w, c.quant)) << "m=" << m << " n=" << n << " k=" << k;
        }
      }
    }
  }
}

// A row's bits do not depend on the rows around it, on the number of threads, or on other weights of the launch.
TEST(Gemm, RowsAreIndependentOfTheirCompany) {
  for (const Isa isa : machine_isas()) {
    for (const Case& c : kCases) {
      SCOPED_TRACE(describe(c, isa));
      const int64_t k = 416;
      const int64_t most = isa == Isa::kPlain ? 40 : 300;
      Random random(17);
      const TestWeight w(random, c.w, 200, k);
      const TestWeight other(random, c.w == DType::kF32 ? DType::kBF16 : DType::kF32, 77, k);
      const TestMatrix all(c.x, most, k, random.normal(most * k));
      OpRunner alone(isa, 1);
      std::vector<float> expected;
      for (int64_t r = 0; r < most; ++r) {
        const TestMatrix row(c.x, 1, k, {all.values.begin() + r * k, all.values.begin() + (r + 1) * k});
        const std::vector<float> y = run_one(alone, row, w, c.quant);
        expected.insert(expected.end(), y.begin(), y.end());
      }
      for (const int threads : {1, 2, 3}) {
        OpRunner runner(isa, threads);
        for (const int64_t m : {int64_t{2}, int64_t{7}, int64_t{16}, int64_t{17}, int64_t{32}, int64_t{39}, most}) {
          const int64_t first = random.integer(0, most - m);
          TestMatrix x(c.x, m, k, {all.values.begin() + first * k, all.values.begin() + (first + m) * k});
          const std::vector<float> part(expected.begin() + first * 200, expected.begin() + (first + m) * 200);
          EXPECT_EQ(run_one(runner, x, w, c.quant), part) << "m=" << m << " threads=" << threads;

          TestMatrix y(DType::kF32, m, 200, std::vector<float>(static_cast<size_t>(m * 200)));
          TestMatrix z(DType::kBF16, m, 77, std::vector<float>(static_cast<size_t>(m * 77)));
          const GemmOutput outputs[] = {{other.view(), z.view()}, {w.view(), y.view()}, {other.view(), z.view()}};
          runner.run(runner.ops().gemm, ops::GemmParams{.x = x.view(), .outputs = outputs, .quant = c.quant});
          EXPECT_EQ(y.read(), part) << "fused, m=" << m << " threads=" << threads;
        }
      }
    }
  }
}

TEST(Gemm, ReadsAndWritesPartsOfWiderMatrices) {
  for (const Isa isa : machine_isas()) {
    OpRunner runner(isa);
    for (const Case& c : kCases) {
      for (const DType y_type : {DType::kF32, DType::kBF16}) {
        SCOPED_TRACE(describe(c, isa));
        Random random(5);
        const int64_t m = 21;
        const int64_t k = 96;
        const TestWeight w(random, c.w, 48, k);
        TestMatrix wide(c.x, m, k + 19, random.normal(m * (k + 19)));
        TestMatrix tight(c.x, m, k, std::vector<float>(static_cast<size_t>(m * k)));
        for (int64_t r = 0; r < m; ++r)
          std::memcpy(tight.view().row_bytes(r), wide.view().columns(13, k).row_bytes(r), static_cast<size_t>(k * dtype_bytes(c.x)));
        TestMatrix y(y_type, m, 48, std::vector<float>(static_cast<size_t>(m * 48)));
        const GemmOutput a{w.view(), y.view()};
        runner.run(runner.ops().gemm, ops::GemmParams{.x = tight.view(), .outputs = {&a, 1}, .quant = c.quant});
        TestMatrix wide_y(y_type, m, 60, std::vector<float>(static_cast<size_t>(m * 60), 3.0F));
        const GemmOutput b{w.view(), wide_y.view().columns(7, 48)};
        runner.run(runner.ops().gemm, ops::GemmParams{.x = wide.view().columns(13, k), .outputs = {&b, 1}, .quant = c.quant});
        const std::vector<float> tight_values = y.read();
        const std::vector<float> wide_values = wide_y.read();
        for (int64_t r = 0; r < m; ++r)
          for (int64_t i = 0; i < 60; ++i)
            ASSERT_EQ(wide_values[static_cast<size_t>(r * 60 + i)],
                      i < 7 || i >= 55 ? 3.0F : tight_values[static_cast<size_t>(r * 48 + i - 7)]);
      }
    }
  }
}

TEST(GemmBatched, EveryBatchIsAProductOfItsColumns) {
  for (const Isa isa : machine_isas()) {
    OpRunner runner(isa);
    for (const DType type : {DType::kF32, DType::kBF16}) {
      for (const int64_t k : {24, 64, 192}) {
        for (const int64_t m : {0, 1, 5, 40}) {
          Random random(static_cast<uint32_t>(k * 100 + m));
          const int64_t batch = 3;
          const int64_t n = 72;
          std::vector<TestWeight> weights;
          for (int64_t b = 0; b < batch; ++b) weights.emplace_back(random, type, n, k);
          std::vector<ops::WeightView> views;
          for (const TestWeight& w : weights) views.push_back(w.view());
          TestMatrix x(type, m, batch * k, random.normal(m * batch * k));
          TestMatrix y(type, m, batch * n, std::vector<float>(static_cast<size_t>(m * batch * n)));
          runner.run(runner.ops().gemm_batched, ops::GemmBatchedParams{.x = x.view(), .w = views, .y = y.view()});
          for (int64_t b = 0; b < batch; ++b) {
            TestMatrix part(type, m, n, std::vector<float>(static_cast<size_t>(m * n)));
            const GemmOutput out{weights[static_cast<size_t>(b)].view(), part.view()};
            runner.run(runner.ops().gemm, ops::GemmParams{.x = x.view().columns(b * k, k), .outputs = {&out, 1}});
            const std::vector<float> expected = part.read();
            const std::vector<float> got = y.read();
            for (int64_t r = 0; r < m; ++r)
              for (int64_t i = 0; i < n; ++i)
                ASSERT_EQ(got[static_cast<size_t>(r * batch * n + b * n + i)], expected[static_cast<size_t>(r * n + i)]) << isa_name(isa);
          }
        }
      }
    }
  }
}

TEST(GatedMlp, ClampsAndGates) {
  for (const Isa isa : machine_isas()) {
    OpRunner runner(isa);
    for (const Case& c : kCases) {
      SCOPED_TRACE(describe(c, isa));
      for (const int64_t m : {0, 1, 17, 50}) {
        Random random(static_cast<uint32_t>(m));
        const int64_t k = 160;
        const int64_t n = 104;
        const TestWeight gate(random, c.w, n, k);
        const TestWeight up(random, c.w, n, k);
        TestMatrix x(c.x, m, k, random.normal(m * k));
        TestMatrix h(c.x, m, n, std::vector<float>(static_cast<size_t>(m * n)));
        const double limit = 1.5;  // well inside the range of the values
        runner.run(
            runner.ops().gated_mlp,
            ops::GatedMlpParams{.x = x.view(), .gate = gate.view(), .up = up.view(), .limit = 1.5F, .h = h.view(), .quant = c.quant});
        std::vector<double> expected = product(x, gate, c.quant);
        const std::vector<double> linear = product(x, up, c.quant);
        for (size_t i = 0; i < expected.size(); ++i) {
          const double g = std::min(expected[i], limit);
          expected[i] = g / (1 + std::exp(-g)) * std::clamp(linear[i], -limit, limit);
        }
        EXPECT_LT(relative_error(h.read(), expected), c.x == DType::kF32 ? 1e-5 : 4.1e-3) << "m=" << m;
      }
    }
  }
}

// All codes of e4m3 reach the product unchanged; a NaN spoils its column and no other.
TEST(Gemm, ExpandsEveryE4m3Exactly) {
  for (const Isa isa : machine_isas()) {
    for (const DType x_type : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(isa_name(isa));
      OpRunner runner(isa);
      const int64_t k = 256;
      Random random(1);
      TestWeight w(random, DType::kF8E4M3, 17, k);
      const auto code = [](int64_t n, int64_t i) { return static_cast<uint8_t>(i + n * 16); };
      const auto is_nan = [](uint8_t c) { return (c & 0x7F) == 0x7F; };
      for (int64_t n = 0; n < 17; ++n)
        for (int64_t i = 0; i < k; ++i)
          w.host.bytes[static_cast<size_t>(n * k + i)] = is_nan(code(n, i)) && n < 16 ? std::byte{0} : static_cast<std::byte>(code(n, i));
      pack(w.host.view(), w.packed.data());
      w.scale = {1, 1};
      std::vector<float> identity(static_cast<size_t>(k * k));
      for (int64_t i = 0; i < k; ++i) identity[static_cast<size_t>(i * k + i)] = 1;
      const std::vector<float> y = run_one(runner, TestMatrix(x_type, k, k, identity), w, ActivationQuant::kNone);
      for (int64_t i = 0; i < k; ++i) {
        for (int64_t n = 0; n < 16; ++n)
          EXPECT_EQ(y[static_cast<size_t>(i * 17 + n)], is_nan(code(n, i)) ? 0 : to_float(e4m3{code(n, i)})) << int{code(n, i)};
        EXPECT_TRUE(std::isnan(y[static_cast<size_t>(i * 17 + 16)]));
      }
    }
  }
}

}  // namespace
}  // namespace baton::cpu::testing
