// Every instruction set against the plain loops.
#include "ops/cpu/kernels/row_kernels.h"

#include "ops/cpu/test_support.h"

namespace baton::cpu::testing {
namespace {

const std::vector<int64_t> kSizes = {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 64, 100, 128, 513};

TEST(RowKernels, RoundingMatchesTheScalarConversions) {
  Random random(1);
  for (const Isa isa : machine_isas()) {
    const RowKernels& k = row_kernels(isa);
    std::vector<float> x = random.normal(1000, 100);
    x.insert(x.end(), {0.0F, -0.0F, INFINITY, -INFINITY, NAN, 1e-40F, 3.4e38F, 1.00390625F, 1.01171875F});
    std::vector<bf16> narrow(x.size());
    k.narrow(x.data(), narrow.data(), DType::kBF16, static_cast<int64_t>(x.size()));
    std::vector<float> wide(x.size());
    k.widen(narrow.data(), DType::kBF16, wide.data(), static_cast<int64_t>(x.size()));
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(narrow[i].bits, to_bf16(x[i]).bits) << x[i] << " " << isa_name(isa);
      EXPECT_EQ(std::bit_cast<uint32_t>(wide[i]), std::bit_cast<uint32_t>(to_float(narrow[i])));
    }
  }
}

TEST(RowKernels, NormsMatchDouble) {
  for (const Isa isa : machine_isas()) {
    for (const int64_t n : kSizes) {
      Random random(static_cast<uint32_t>(n));
      const std::vector<float> x = random.normal(n);
      const std::vector<float> w = random.normal(n);
      const std::vector<float> b = random.normal(n);
      double square = 0;
      double mean = 0;
      for (const float v : x) {
        square += double{v} * v / static_cast<double>(n);
        mean += double{v} / static_cast<double>(n);
      }
      double variance = 0;
      for (const float v : x) variance += (v - mean) * (v - mean) / static_cast<double>(n);
      std::vector<double> rms;
      std::vector<double> layer;
      for (size_t i = 0; i < x.size(); ++i) {
        rms.push_back(x[i] / std::sqrt(square + 1e-5) * w[i]);
        layer.push_back((x[i] - mean) / std::sqrt(variance + 1e-6) * w[i] + b[i]);
      }
      std::vector<float> y(x.size());
      row_kernels(isa).rms_norm(x.data(), w.data(), 1e-5F, y.data(), n);
      EXPECT_LT(relative_error(y, rms), 1e-6) << n;
      row_kernels(isa).layer_norm(x.data(), w.data(), b.data(), 1e-6F, y.data(), n);
      EXPECT_LT(relative_error(y, layer), 1e-5) << n;
    }
  }
}

TEST(RowKernels, ActivationsMatchDouble) {
  for (const Isa isa : machine_isas()) {
    Random random(3);
    std::vector<float> gate = random.normal(1000, 20);
    const std::vector<float> up = random.normal(1000, 20);
    std::vector<float> h(gate.size());
    row_kernels(isa).clamped_swiglu(gate.data(), up.data(), 10, h.data(), 1000);
    for (size_t i = 0; i < h.size(); ++i) {
      const double g = std::min(double{gate[i]}, 10.0);
      const double expected = g / (1 + std::exp(-g)) * std::clamp(double{up[i]}, -10.0, 10.0);
      EXPECT_NEAR(h[i], expected, 1e-6 + 1e-6 * std::fabs(expected)) << gate[i] << " " << isa_name(isa);
    }
    row_kernels(isa).sigmoid(gate.data(), 1000);
    for (const float s : gate) EXPECT_TRUE(s >= 0 && s <= 1);
  }
}

TEST(RowKernels, HadamardKeepsDotProducts) {
  for (const Isa isa : machine_isas()) {
    Random random(4);
    std::vector<float> a = random.normal(128);
    std::vector<float> b = random.normal(128);
    double before = 0;
    for (size_t i = 0; i < a.size(); ++i) before += double{a[i]} * b[i];
    row_kernels(isa).hadamard(a.data(), 128);
    row_kernels(isa).hadamard(b.data(), 128);
    double after = 0;
    for (size_t i = 0; i < a.size(); ++i) after += double{a[i]} * b[i];
    EXPECT_NEAR(before, after, 1e-4);
  }
}

// Blocks of keys one after the other equal one softmax over all of them.
TEST(RowKernels, BlockedAttentionMatchesDouble) {
  for (const Isa isa : machine_isas()) {
    for (const int64_t heads : {1, 3, 4, 9}) {
      for (const int64_t dim : {8, 32, 40, 128}) {
        Random random(static_cast<uint32_t>(heads * 1000 + dim));
        const int64_t keys = 77;
        const std::vector<float> q = random.normal(heads * dim);
        const std::vector<float> rows = random.normal(keys * dim);
        const std::vector<float> values = random.normal(keys * dim);
        std::vector<float> max(static_cast<size_t>(heads), -INFINITY);
        std::vector<float> sum(static_cast<size_t>(heads));
        std::vector<float> out(static_cast<size_t>(heads * dim));
        std::vector<float> scratch(static_cast<size_t>(heads * 64));
        for (int64_t first = 0; first < keys; first += 30)
          row_kernels(isa).attend_block(q.data(), &rows[static_cast<size_t>(first * dim)], &values[static_cast<size_t>(first * dim)],
                                        std::min<int64_t>(30, keys - first), heads, dim, 0.3F, max.data(), sum.data(), out.data(),
                                        scratch.data());
        std::vector<double> expected;
        for (int64_t h = 0; h < heads; ++h) {
          std::vector<double> p;
          double norm = 0;
          for (int64_t s = 0; s < keys; ++s) {
            double z = 0;
            for (int64_t i = 0; i < dim; ++i) z += double{q[static_cast<size_t>(h * dim + i)]} * rows[static_cast<size_t>(s * dim + i)];
            p.push_back(std::exp(0.3 * z));
            norm += p.back();
          }
          for (int64_t i = 0; i < dim; ++i) {
            double o = 0;
            for (int64_t s = 0; s < keys; ++s) o += p[static_cast<size_t>(s)] / norm * values[static_cast<size_t>(s * dim + i)];
            expected.push_back(o);
          }
        }
        for (int64_t h = 0; h < heads; ++h)
          for (int64_t i = 0; i < dim; ++i) out[static_cast<size_t>(h * dim + i)] /= sum[static_cast<size_t>(h)];
        EXPECT_LT(relative_error(out, expected), 1e-5) << heads << " x " << dim << " " << isa_name(isa);
      }
    }
  }
}

}  // namespace
}  // namespace baton::cpu::testing
