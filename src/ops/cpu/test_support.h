// Shared by the tests of the CPU ops: seeded data, a backend with a workspace, and the error measure.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "ops/cpu/backend.h"

namespace baton::cpu::testing {

inline std::vector<Isa> machine_isas() {
  std::vector<Isa> out;
  for (const Isa isa : {Isa::kPlain, Isa::kAvx2, Isa::kAvx512, Isa::kAmx})
    if (isa <= detect_isa()) out.push_back(isa);
  return out;
}

class Random {
 public:
  explicit Random(uint32_t seed) : engine_(seed) {}
  std::vector<float> normal(int64_t n, float scale = 1) {
    std::normal_distribution<float> d(0, scale);
    std::vector<float> x(static_cast<size_t>(n));
    for (float& v : x) v = d(engine_);
    return x;
  }
  int64_t integer(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(engine_); }

 private:
  std::mt19937 engine_;
};

inline MatrixView view(std::vector<float>& x, int64_t rows) {
  const int64_t cols = rows == 0 ? 0 : static_cast<int64_t>(x.size()) / rows;
  return {x.data(), DType::kF32, rows, cols, cols};
}

// max |a - b| / max |b|
template <class T>
double relative_error(const std::vector<float>& a, const std::vector<T>& b) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  double largest = 1e-30;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    worst = std::max(worst, std::isnan(a[i]) ? INFINITY : std::fabs(double{a[i]} - static_cast<double>(b[i])));
    largest = std::max(largest, std::fabs(static_cast<double>(b[i])));
  }
  return worst / largest;
}

// Runs ops with exactly the workspace that they ask for, surrounded by a guard.
class OpRunner {
 public:
  explicit OpRunner(Isa isa, int threads = 2) : backend_({.threads = threads, .isa = isa}) {}
  template <class Params>
  void run(const ops::Op<Params>& op, const Params& params) {
    ASSERT_TRUE(op.supports(params));
    const int64_t bytes = op.workspace_bytes(backend_.executor(), params);
    std::vector<std::byte> memory(static_cast<size_t>(bytes + 3 * kBufferAlignment), std::byte{0xA5});
    auto address = reinterpret_cast<uintptr_t>(memory.data());
    std::byte* base = memory.data() + (kBufferAlignment - address % kBufferAlignment);
    Arena arena(base, bytes);
    ops::Context context{&backend_.executor(), &arena};
    op.run(context, params);
    for (std::byte* p = base + bytes; p < memory.data() + memory.size(); ++p)
      ASSERT_EQ(*p, std::byte{0xA5}) << "an op wrote past its workspace";
    EXPECT_EQ(arena.mark(), 0);
  }
  const ops::OpTable& ops() const { return backend_.ops(); }
  CpuBackend& backend() { return backend_; }

 private:
  CpuBackend backend_;
};

}  // namespace baton::cpu::testing
