// The dense products, run on the CPU from their own source, launches included, against double; and a row's bits in launches of every shape.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "ops/cuda/gemm/config.cc"
#include "ops/cuda/gemm/inst/multiply_bf16.cu"
#include "ops/cuda/gemm/inst/multiply_e4m3.cu"
#include "ops/cuda/gemm/inst/multiply_e4m3_gated.cu"
#include "ops/cuda/gemm/launch.cu"

namespace baton::cuda::gemm {

// The kernels' dynamic shared memory.
alignas(1024) std::byte shared_memory[200 << 10];

namespace {

constexpr float kUnwritten = -77;

struct Matrix {
  DType type = DType::kBF16;
  int64_t rows = 0, cols = 0, stride = 0;
  std::vector<std::byte> memory{};  // 16 bytes more than it takes, to align it

  Matrix() = default;
  Matrix(DType t, int64_t r, int64_t c, int64_t pitch = 0)
      : type(t), rows(r), cols(c), stride(pitch > 0 ? pitch : c), memory(static_cast<size_t>(r * stride * dtype_bytes(t) + 32)) {}
  std::byte* data() const {
    auto* p = const_cast<std::byte*>(memory.data());
    return p + (16 - reinterpret_cast<uintptr_t>(p) % 16) % 16;
  }
  MatrixView view() const { return {data(), type, rows, cols, stride}; }
  float at(int64_t r, int64_t c) const {
    const std::byte* p = view().row_bytes(r) + c * dtype_bytes(type);
    if (type == DType::kBF16) return to_float(*reinterpret_cast<const bf16*>(p));
    if (type == DType::kF8E4M3) return to_float(*reinterpret_cast<const e4m3*>(p));
    return *reinterpret_cast<const float*>(p);
  }
  void put(int64_t r, int64_t c, float x) {
    std::byte* p = view().row_bytes(r) + c * dtype_bytes(type);
    if (type == DType::kBF16)
      *reinterpret_cast<bf16*>(p) = to_bf16(x);
    else if (type == DType::kF8E4M3)
      *reinterpret_cast<e4m3*>(p) = to_e4m3(x);
    else
      *reinterpret_cast<float*>(p) = x;
  }
};

class EmulatedGemm : public ::testing::Test {
 protected:
  void SetUp() override {
    emulated::shared = shared_memory;
    emulated_multiprocessors = 1;
  }

  Matrix random_rows(int64_t rows, int64_t cols, int64_t pitch = 0) {
    Matrix m(DType::kBF16, rows, cols, pitch);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) m.put(r, c, normal_(random_) * (r % 3 == 2 ? 30.0F : 1.0F));
    return m;
  }
  Matrix output(DType type, int64_t rows, int64_t cols) {
    Matrix m(type, rows, cols, cols + 2);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols + 2; ++c) m.put(r, c, kUnwritten);
    return m;
  }
  struct Weight {
    Matrix m;
    std::vector<float> scale;
    ops::WeightView view() const { return {m.data(), scale.empty() ? nullptr : scale.data(), m.type, m.rows, m.cols}; }
    double at(int64_t n, int64_t k) const {
      const double s = scale.empty() ? 1 : static_cast<double>(scale[static_cast<size_t>(n / 128 * ((m.cols + 127) / 128) + k / 128)]);
      return s * static_cast<double>(m.at(n, k));
    }
  };
  Weight weight(DType type, int64_t n, int64_t k) {
    Weight w{Matrix(type, n, k), {}};
    for (int64_t r = 0; r < n; ++r)
      for (int64_t c = 0; c < k; ++c) w.m.put(r, c, normal_(random_) * (type == DType::kF8E4M3 ? 40.0F : 1.0F));
    if (type == DType::kF8E4M3)
      for (int64_t i = 0; i < (n + 127) / 128 * ((k + 127) / 128); ++i) w.scale.push_back(std::exp2(normal_(random_)) / 40.0F);
    return w;
  }

  // Rows as they enter the product.
  static std::vector<double> entering(const Matrix& x, bool rounded) {
    std::vector<double> out(static_cast<size_t>(x.rows * x.cols));
    for (int64_t r = 0; r < x.rows; ++r)
      for (int64_t first = 0; first < x.cols; first += 128) {
        const int64_t end = std::min(first + 128, x.cols);
        float most = 0;
        for (int64_t c = first; c < end; ++c) most = std::max(most, std::fabs(x.at(r, c)));
        const float scale = most > 0 ? most / 448.0F : 1.0F;
        for (int64_t c = first; c < end; ++c)
          out[static_cast<size_t>(r * x.cols + c)] =
              rounded ? static_cast<double>(scale) * static_cast<double>(to_float(to_e4m3(x.at(r, c) / scale)))
                      : static_cast<double>(x.at(r, c));
      }
    return out;
  }
  static double dot(const std::vector<double>& x, int64_t row, const Weight& w, int64_t n) {
    double sum = 0;
    for (int64_t c = 0; c < w.m.cols; ++c) sum += x[static_cast<size_t>(row * w.m.cols + c)] * w.at(n, c);
    return sum;
  }
  static void expect_close(double error, double size, DType out) {
    EXPECT_LT(std::sqrt(error / size), out == DType::kBF16 ? 2.5e-3 : 2e-6);
  }

  // Workspace that ends where the op said.
  template <class Op>
  static void run_op(const Op& op) {
    ASSERT_TRUE(supported(op));
    const auto bytes = static_cast<size_t>(workspace_bytes(op));
    std::vector<std::byte> memory(bytes + 512, std::byte{0x5A});
    std::byte* at = memory.data() + (256 - reinterpret_cast<uintptr_t>(memory.data()) % 256) % 256;
    ASSERT_EQ(run(op, at, nullptr), cudaSuccess);
    for (size_t i = 0; i < 256; ++i) ASSERT_EQ(at[bytes + i], std::byte{0x5A}) << "behind the workspace";
  }

  struct Case {
    int64_t rows, k;
    std::vector<int64_t> columns;
    DType weights, out;
    int multiprocessors = 1;
  };
  void check(const Case& c, unsigned seed) {
    SCOPED_TRACE("seed " + std::to_string(seed) + ", " + std::to_string(c.rows) + " rows of " + std::to_string(c.k));
    random_.seed(seed);
    emulated_multiprocessors = c.multiprocessors;
    const bool rounded = c.weights == DType::kF8E4M3;
    const Matrix x = random_rows(c.rows, c.k, c.k + 8);
    std::vector<Weight> w;
    std::vector<Matrix> y;
    for (const int64_t n : c.columns) {
      w.push_back(weight(c.weights, n, c.k));
      y.push_back(output(c.out, c.rows, n));
    }
    std::vector<ops::GemmOutput> outputs;
    for (size_t i = 0; i < w.size(); ++i) outputs.push_back({w[i].view(), y[i].view()});
    const ops::GemmParams params{.x = x.view(), .outputs = outputs, .quant = ops::ActivationQuant::kE4m3Block};
    run_op(params);
    const std::vector<double> rows = entering(x, rounded);
    for (size_t i = 0; i < w.size(); ++i) {
      double error = 0, size = 0;
      for (int64_t r = 0; r < c.rows; ++r) {
        for (int64_t n = 0; n < c.columns[i]; ++n) {
          const double want = dot(rows, r, w[i], n);
          const double d = static_cast<double>(y[i].at(r, n)) - want;
          error += d * d;
          size += want * want;
        }
        EXPECT_EQ(y[i].at(r, c.columns[i]), to_float(to_bf16(kUnwritten))) << "behind row " << r;
      }
      expect_close(error, size, c.out);
    }
    // The first rows alone, in the smallest tiles: the same bits.
    const int64_t few = std::min<int64_t>(c.rows, 3);
    std::vector<Matrix> alone;
    std::vector<ops::GemmOutput> of_few;
    for (const int64_t n : c.columns) alone.push_back(output(c.out, few, n));
    for (size_t i = 0; i < w.size(); ++i) of_few.push_back({w[i].view(), alone[i].view()});
    run_op(ops::GemmParams{.x = x.view().row_range(0, few), .outputs = of_few, .quant = ops::ActivationQuant::kE4m3Block});
    for (size_t i = 0; i < w.size(); ++i)
      for (int64_t r = 0; r < few; ++r)
        for (int64_t n = 0; n < c.columns[i]; ++n) ASSERT_EQ(alone[i].at(r, n), y[i].at(r, n)) << "row " << r << ", column " << n;
  }

  std::mt19937 random_;
  std::normal_distribution<float> normal_;
};

constexpr DType kBF16 = DType::kBF16;
constexpr DType kF32 = DType::kF32;
constexpr DType kFP8 = DType::kF8E4M3;

TEST_F(EmulatedGemm, FewRows) {
  check({1, 320, {24, 200, 2}, kBF16, kBF16}, 1);  // more steps than stages
  check({64, 72, {128, 130}, kBF16, kF32}, 2);     // k ends inside a step
  check({5, 768, {136}, kFP8, kF32}, 3);
}
TEST_F(EmulatedGemm, SomeRows) {
  check({65, 256, {136}, kBF16, kBF16, 1000}, 4);
  check({129, 64, {32, 128}, kBF16, kF32, 1000}, 5);
}
TEST_F(EmulatedGemm, ManyRows) {
  check({130, 320, {264}, kBF16, kF32}, 6);
  check({130, 896, {136, 64}, kFP8, kBF16}, 7);
}
TEST_F(EmulatedGemm, BothKindsOfWeights) {
  random_.seed(8);
  const Matrix x = random_rows(9, 256);
  const Weight w[] = {weight(kFP8, 40, 256), weight(kBF16, 24, 256)};
  const Matrix y[] = {output(kBF16, 9, 40), output(kF32, 9, 24)};
  const ops::GemmOutput outputs[] = {{w[0].view(), y[0].view()}, {w[1].view(), y[1].view()}};
  run_op(ops::GemmParams{.x = x.view(), .outputs = outputs, .quant = ops::ActivationQuant::kE4m3Block});
  for (int i = 0; i < 2; ++i) {
    const std::vector<double> rows = entering(x, i == 0);
    double error = 0, size = 0;
    for (int64_t r = 0; r < 9; ++r)
      for (int64_t n = 0; n < w[i].m.rows; ++n) {
        const double want = dot(rows, r, w[i], n);
        error += std::pow(static_cast<double>(y[i].at(r, n)) - want, 2);
        size += want * want;
      }
    expect_close(error, size, y[i].type);
  }
}

TEST_F(EmulatedGemm, Gated) {
  for (const int64_t rows : {3, 70}) {
    SCOPED_TRACE(rows);
    random_.seed(9);
    const Matrix x = random_rows(rows, 256);
    const Weight up = weight(kFP8, 200, 256);
    Weight small = weight(kFP8, 200, 256);
    for (float& s : small.scale) s *= 0.05F;  // some of the gates inside the limit
    const Matrix h = output(kF32, rows, 200);
    run_op(ops::GatedMlpParams{
        .x = x.view(), .gate = small.view(), .up = up.view(), .limit = 3, .h = h.view(), .quant = ops::ActivationQuant::kE4m3Block});
    const std::vector<double> entered = entering(x, true);
    double error = 0, size = 0;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t n = 0; n < 200; ++n) {
        const double g = std::min(dot(entered, r, small, n), 3.0);
        const double want = g / (1 + std::exp(-g)) * std::clamp(dot(entered, r, up, n), -3.0, 3.0);
        error += std::pow(static_cast<double>(h.at(r, n)) - want, 2);
        size += want * want;
      }
    EXPECT_LT(std::sqrt(error / size), 1e-5);
  }
}

// Heads whose weights lie between others.
TEST_F(EmulatedGemm, Batched) {
  for (const int64_t rows : {4, 67}) {
    SCOPED_TRACE(rows);
    random_.seed(10);
    constexpr int64_t kHeads = 3, kN = 40, kK = 128;
    const Weight all = weight(kBF16, kHeads * 50, kK);
    std::vector<ops::WeightView> w;
    for (int64_t h = 0; h < kHeads; ++h) w.push_back({all.m.view().row_bytes(h * 50), nullptr, kBF16, kN, kK});
    const Matrix x = random_rows(rows, kHeads * kK);
    const Matrix y = output(kF32, rows, kHeads * kN);
    const ops::GemmBatchedParams params{.x = x.view(), .w = w, .y = y.view()};
    ASSERT_TRUE(supported(params));
    ASSERT_EQ(run(params, nullptr), cudaSuccess);
    double error = 0, size = 0;
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t h = 0; h < kHeads; ++h)
        for (int64_t n = 0; n < kN; ++n) {
          double want = 0;
          for (int64_t k = 0; k < kK; ++k) want += static_cast<double>(x.at(r, h * kK + k)) * all.at(h * 50 + n, k);
          error += std::pow(static_cast<double>(y.at(r, h * kN + n)) - want, 2);
          size += want * want;
        }
    expect_close(error, size, kF32);
  }
}

TEST_F(EmulatedGemm, WhatIsLeftToThePlainBody) {
  const Matrix x = random_rows(2, 256), floats(kF32, 2, 256), odd = random_rows(2, 260);
  const Matrix y = output(kBF16, 2, 40);
  const Weight bf16 = weight(kBF16, 40, 256), fp8 = weight(kFP8, 40, 256), wide = weight(kBF16, 40, 260);
  const auto takes = [&y](const Matrix& rows, const Weight& w, ops::ActivationQuant quant) {
    const ops::GemmOutput o{w.view(), y.view()};
    return supported(ops::GemmParams{.x = rows.view(), .outputs = {&o, 1}, .quant = quant});
  };
  EXPECT_TRUE(takes(x, bf16, ops::ActivationQuant::kNone));
  EXPECT_TRUE(takes(x, fp8, ops::ActivationQuant::kE4m3Block));
  EXPECT_FALSE(takes(x, fp8, ops::ActivationQuant::kNone)) << "rows as they are";
  EXPECT_FALSE(takes(floats, bf16, ops::ActivationQuant::kNone));
  EXPECT_FALSE(takes(odd, wide, ops::ActivationQuant::kNone)) << "rows of 520 bytes cannot be copied in boxes";
}

}  // namespace
}  // namespace baton::cuda::gemm
