// Two backends side by side: the CPU, which is right, and another whose memory the host can read. Both get the same random inputs; what
// they write is compared.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "ops/cpu/backend.h"
#include "ops/op_table.h"

namespace baton::pair {

// A weight in both backends' orders.
struct Weight {
  ops::WeightView cpu, device;
};

struct Finding {
  std::string name;
  double error = 0;  // ||a - b|| / ||a||, or the share of values that differ
  double bound = 0;
  bool ok() const { return error <= bound; }  // what is not a number is not
};

class Pair {
 public:
  Pair(ops::Backend& device, unsigned seed, cpu::Isa isa) : device_(device), cpu_({.threads = 2, .isa = isa}), random_(seed) {}

  ops::Backend& device() { return device_; }
  std::mt19937& random() { return random_; }
  const std::vector<Finding>& findings() const { return findings_; }
  void name(std::string name) { name_ = std::move(name); }

  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }
  float normal(float scale = 1) { return scale * normal_(random_); }

  // Memory that both see, zero-filled, until the pair ends.
  std::byte* bytes(int64_t n) {
    auto buffer = device_.allocate(n > 0 ? n : 1);
    BATON_CHECK_MSG(bool(buffer), "{} bytes", n);
    buffers_.push_back(std::move(*buffer));
    return buffers_.back().data();
  }
  template <class T>
  T* array(int64_t n) {
    return reinterpret_cast<T*>(bytes(n * static_cast<int64_t>(sizeof(T))));
  }
  float* floats(int64_t n, float scale = 1, float offset = 0) {
    auto* p = array<float>(n);
    for (int64_t i = 0; i < n; ++i) p[i] = offset + normal(scale);
    return p;
  }
  // Random values; `pitch` columns of memory a row.
  MatrixView matrix(DType type, int64_t rows, int64_t cols, float scale = 1, int64_t pitch = 0) {
    if (pitch == 0) pitch = cols;
    MatrixView m{bytes(rows * pitch * dtype_bytes(type)), type, rows, cols, pitch};
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) put(m, r, c, normal(scale));
    return m;
  }
  // An output: not a number everywhere.
  MatrixView output(DType type, int64_t rows, int64_t cols) {
    MatrixView m = matrix(type, rows, cols, 0);
    std::memset(m.data, 0xFF, static_cast<size_t>(rows * cols * dtype_bytes(type)));
    return m;
  }
  MatrixView copy(const MatrixView& m) {
    MatrixView to = matrix(m.dtype, m.rows, m.cols, 0);
    for (int64_t r = 0; r < m.rows; ++r) std::memcpy(to.row_bytes(r), m.row_bytes(r), static_cast<size_t>(m.cols * dtype_bytes(m.dtype)));
    return to;
  }
  std::byte* copy_bytes(const std::byte* from, int64_t n) {
    std::byte* to = bytes(n);
    std::memcpy(to, from, static_cast<size_t>(n));
    return to;
  }

  // `place`: where the device's goes, with its scales behind it; null: anywhere.
  Weight weight(DType type, int64_t n, int64_t k, std::byte* place = nullptr) {
    Weight w;
    w.cpu = w.device = {nullptr, nullptr, type, n, k};
    const MatrixView host = matrix(type, n, k, type == DType::kF8E4M3 ? 40.0F : 1.0F / std::sqrt(static_cast<float>(k)));
    if (type == DType::kF8E4M3) {
      const int64_t count = (n + 127) / 128 * ((k + 127) / 128);
      auto* scale = array<float>(count);
      for (int64_t i = 0; i < count; ++i) scale[i] = std::exp2(normal(0.5F)) / 40.0F / std::sqrt(static_cast<float>(k));
      w.cpu.scale = w.device.scale = scale;
      if (place != nullptr) {
        void* const at = place + device_.weight_bytes(type, n, k);
        std::memcpy(at, scale, static_cast<size_t>(count) * sizeof(float));
        w.device.scale = static_cast<float*>(at);
      }
    }
    void* cpu = bytes(cpu_.weight_bytes(type, n, k));
    void* device = place != nullptr ? place : bytes(device_.weight_bytes(type, n, k));
    cpu_.store_weight(cpu, host);
    device_.store_weight(device, host);
    device_.synchronize();
    w.cpu.data = cpu;
    w.device.data = device;
    return w;
  }

  // Runs an op on both. Its workspace is what it asked for, with a guard behind it.
  template <class Params>
  void run(ops::Op<Params> ops::OpTable::*op, const Params& cpu, const Params& device) {
    run_on(cpu_, (cpu_.ops().*op), cpu);
    BATON_CHECK_MSG((device_.ops().*op).run != nullptr, "{}: not registered", name_);
    BATON_CHECK_MSG((device_.ops().*op).supports(device), "{}: not supported", name_);
    run_on(device_, (device_.ops().*op), device);
    device_.synchronize();
  }

  template <class Params>
  void run_on_cpu(ops::Op<Params> ops::OpTable::*op, const Params& params) {
    run_on(cpu_, (cpu_.ops().*op), params);
  }
  template <class Params>
  void run_on_device(ops::Op<Params> ops::OpTable::*op, const Params& device) {
    run_on(device_, (device_.ops().*op), device);
    device_.synchronize();
  }

  static float get(const ConstMatrixView& m, int64_t r, int64_t c) {
    const std::byte* p = m.row_bytes(r) + c * dtype_bytes(m.dtype);
    if (m.dtype == DType::kBF16) return to_float(*reinterpret_cast<const bf16*>(p));
    if (m.dtype == DType::kF8E4M3) return to_float(*reinterpret_cast<const e4m3*>(p));
    return *reinterpret_cast<const float*>(p);
  }
  static void put(const MatrixView& m, int64_t r, int64_t c, float x) {
    std::byte* p = m.row_bytes(r) + c * dtype_bytes(m.dtype);
    if (m.dtype == DType::kBF16) {
      *reinterpret_cast<bf16*>(p) = to_bf16(x);
    } else if (m.dtype == DType::kF8E4M3) {
      *reinterpret_cast<e4m3*>(p) = to_e4m3(x);
    } else {
      *reinterpret_cast<float*>(p) = x;
    }
  }

  // Of whole matrices, by the norm of the difference. Both not a number in the same place counts as an output that was not written.
  void same(const std::string& what, const ConstMatrixView& a, const ConstMatrixView& b, double bound) {
    double difference = 0, size = 1e-30;
    for (int64_t r = 0; r < a.rows; ++r)
      for (int64_t c = 0; c < a.cols; ++c) {
        const auto x = static_cast<double>(get(a, r, c));
        const auto y = static_cast<double>(get(b, r, c));
        difference += (x - y) * (x - y);
        size += x * x;
      }
    add(what, std::sqrt(difference / size), bound);
  }
  template <class T>
  void equal(const std::string& what, const T* a, const T* b, int64_t n) {
    int64_t different = 0;
    for (int64_t i = 0; i < n; ++i) different += a[i] == b[i] ? 0 : 1;
    add(what, n == 0 ? 0.0 : static_cast<double>(different) / static_cast<double>(n), 0);
  }
  void add(const std::string& what, double error, double bound) { findings_.push_back({name_ + ": " + what, error, bound}); }

 private:
  template <class Params>
  void run_on(ops::Backend& backend, const ops::Op<Params>& op, const Params& params) {
    constexpr int64_t kGuard = 4096;
    const int64_t size = op.workspace_bytes(backend.executor(), params);
    std::byte* memory = bytes(size + kGuard);
    std::memset(memory, 0xFF, static_cast<size_t>(size + kGuard));
    Arena arena(memory, size);
    ops::Context context{&backend.executor(), &arena};
    op.run(context, params);
    backend.synchronize();
    for (int64_t i = 0; i < kGuard; ++i) BATON_CHECK_MSG(memory[size + i] == std::byte{0xFF}, "{}: wrote behind its workspace", name_);
    buffers_.pop_back();
  }

  ops::Backend& device_;
  cpu::CpuBackend cpu_;
  std::mt19937 random_;
  std::normal_distribution<float> normal_;
  std::vector<Buffer> buffers_;
  std::vector<Finding> findings_;
  std::string name_;
};

// All ops over types, shapes and edges. `released`: also sizes of the released model, for which a backend may have kernels of their own.
void check_dense(Pair& pair);
void check_experts(Pair& pair);
void check_streams(Pair& pair);
void check_kda(Pair& pair);
void check_sparse(Pair& pair);
void check_sampling(Pair& pair);
void check_drafter(Pair& pair);
void check_released(Pair& pair);
// Sizes of tuned dense products and experts, and of the latter what a backend makes of them when it prepares them.
void check_matrices(Pair& pair);

}  // namespace baton::pair
