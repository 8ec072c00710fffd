// Weights and inputs for the tests of the products: values that their type holds exactly, in a backend's order and as plain doubles.
#pragma once

#include "ops/cpu/packed_weight.h"
#include "ops/cpu/test_support.h"

namespace baton::cpu::testing {

// A matrix of any float type with its values as floats.
struct TestMatrix {
  DType dtype;
  int64_t rows;
  int64_t cols;
  std::vector<float> values;     // as stored, scales excluded
  std::vector<std::byte> bytes;  // row-major

  TestMatrix(DType type, int64_t n, int64_t k, std::vector<float> source)
      : dtype(type), rows(n), cols(k), values(std::move(source)), bytes(static_cast<size_t>(n * k * dtype_bytes(type))) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (type == DType::kF32) reinterpret_cast<float*>(bytes.data())[i] = values[i];
      if (type == DType::kBF16) values[i] = to_float(reinterpret_cast<bf16*>(bytes.data())[i] = to_bf16(values[i]));
      if (type == DType::kF8E4M3) values[i] = to_float(reinterpret_cast<e4m3*>(bytes.data())[i] = to_e4m3(values[i]));
    }
  }
  MatrixView view() { return {bytes.data(), dtype, rows, cols, cols}; }
  float at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * cols + c)]; }
  std::vector<float> read() const {  // what an op has written
    std::vector<float> out(static_cast<size_t>(rows * cols));
    for (size_t i = 0; i < out.size(); ++i)
      out[i] =
          dtype == DType::kF32 ? reinterpret_cast<const float*>(bytes.data())[i] : to_float(reinterpret_cast<const bf16*>(bytes.data())[i]);
    return out;
  }
};

struct TestWeight {
  TestMatrix host;
  std::vector<float> scale;
  Buffer packed;

  TestWeight(Random& random, DType type, int64_t n, int64_t k)
      : host(type, n, k, random.normal(n * k, type == DType::kF8E4M3 ? 40.0F : 0.1F)),
        packed(allocate_host(packed_bytes(type, n, k)).value()) {
    if (type == DType::kF8E4M3)
      for (int64_t i = 0; i < (n + 127) / 128 * groups(); ++i) scale.push_back(1e-5F * static_cast<float>(1 + random.integer(0, 900)));
    pack(host.view(), packed.data());
  }
  int64_t groups() const { return (host.cols + 127) / 128; }
  ops::WeightView view() const { return {packed.data(), scale.empty() ? nullptr : scale.data(), host.dtype, host.rows, host.cols}; }
  double at(int64_t n, int64_t k) const {
    return double{host.at(n, k)} * (scale.empty() ? 1.0F : scale[static_cast<size_t>(n / 128 * groups() + k / 128)]);
  }
};

// What ActivationQuant::kE4m3Block makes of a row of values.
inline std::vector<double> quantised(const std::vector<float>& x) {
  std::vector<double> out;
  for (size_t begin = 0; begin < x.size(); begin += 128) {
    const size_t end = std::min(x.size(), begin + 128);
    float top = 0;
    for (size_t i = begin; i < end; ++i) top = std::max(top, std::fabs(x[i]));
    const float s = top == 0 ? 1.0F : top / kE4m3Max;
    for (size_t i = begin; i < end; ++i) out.push_back(double{to_float(to_e4m3(x[i] / s))} * s);
  }
  return out;
}

// x w^T in double, x rounded as `quant` says.
inline std::vector<double> product(const TestMatrix& x, const TestWeight& w, ops::ActivationQuant quant) {
  std::vector<double> y;
  for (int64_t r = 0; r < x.rows; ++r) {
    const std::vector<float> row(x.values.begin() + r * x.cols, x.values.begin() + (r + 1) * x.cols);
    const bool rounds = quant == ops::ActivationQuant::kE4m3Block && w.host.dtype == DType::kF8E4M3;
    const std::vector<double> values = rounds ? quantised(row) : std::vector<double>(row.begin(), row.end());
    for (int64_t n = 0; n < w.host.rows; ++n) {
      double sum = 0;
      for (int64_t k = 0; k < x.cols; ++k) sum += values[static_cast<size_t>(k)] * w.at(n, k);
      y.push_back(sum);
    }
  }
  return y;
}

}  // namespace baton::cpu::testing
