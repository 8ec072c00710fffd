// Prints what the matrix products of the CPU reach: bytes of weights per second for one row, operations per second for many, and both
// beside what this machine reads from memory in the same minute.
//   bench_gemm [threads] [isa]
#include <fmt/format.h>
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ops/cpu/backend.h"

namespace {

using namespace baton;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// The best of several runs: other work on the machine only ever slows one down.
template <class Fn>
double best_seconds(const Fn& fn) {
  double best = 1e9;
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < 3 || (seconds_since(begin) < 0.4 && i < 2000); ++i) {
    const Clock::time_point t = Clock::now();
    fn();
    best = std::min(best, seconds_since(t));
  }
  return best;
}

double read_bandwidth(cpu::ThreadPool& pool, const std::byte* data, int64_t bytes) {
  constexpr int64_t kChunk = 64 * 1024;
  constexpr int64_t kAhead = 4096;
  std::vector<int64_t> sums(static_cast<size_t>(pool.size()) * 8);  // one cache line per thread
  const double s = best_seconds([&] {
    pool.parallel_for(bytes / kChunk, 1, [&](int64_t begin, int64_t end, int thread) {
      __m256i a{};
      __m256i b{};
      for (const std::byte* p = data + begin * kChunk; p < data + end * kChunk; p += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(p + kAhead), _MM_HINT_T0);
        a = _mm256_add_epi64(a, _mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
        b = _mm256_add_epi64(b, _mm256_load_si256(reinterpret_cast<const __m256i*>(p + 32)));
      }
      sums[static_cast<size_t>(thread) * 8] += _mm256_extract_epi64(_mm256_add_epi64(a, b), 0);
    });
  });
  volatile int64_t sink = sums[0];
  (void)sink;
  return static_cast<double>(bytes) / s;
}

// Row-major weights into the CPU's order, by one thread.
void bench_pack(cpu::CpuBackend& backend, std::byte* memory) {
  const int64_t n = 4096;
  const int64_t k = 2048;
  for (const DType type : {DType::kBF16, DType::kF8E4M3, DType::kF32}) {
    const std::vector<std::byte> host(static_cast<size_t>(n * k * dtype_bytes(type)), std::byte{0x11});
    const double s = best_seconds([&] { backend.store_weight(memory, {host.data(), type, n, k, k}); });
    fmt::print("{:8} packed at {:.1f} GB/s\n", dtype_name(type), static_cast<double>(host.size()) / s / 1e9);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const cpu::Isa isa = argc > 2 ? cpu::parse_isa(argv[2]).value_or(cpu::detect_isa()) : cpu::detect_isa();
  cpu::CpuBackend backend({.threads = threads, .isa = isa});
  const int64_t k = 512;
  const int64_t matrices = 64;
  const int64_t n = 512;
  Buffer memory = backend.allocate(matrices * n * k * 4).value();
  std::memset(memory.data(), 0x11, static_cast<size_t>(memory.bytes()));
  const double bandwidth = read_bandwidth(backend.executor().pool(), memory.data(), memory.bytes());
  fmt::print("{} threads, {}: reads {:.1f} GB/s of {} MB\n", threads, cpu::isa_name(isa), bandwidth / 1e9, memory.bytes() >> 20);

  bench_pack(backend, memory.data());
  std::memset(memory.data(), 0x11, static_cast<size_t>(memory.bytes()));

  std::vector<float> scale(64, 1.0F);
  Buffer workspace = backend.allocate(64 << 20).value();
  for (const DType type : {DType::kBF16, DType::kF8E4M3, DType::kF32}) {
    const DType x_type = type == DType::kF32 ? DType::kF32 : DType::kBF16;
    for (const int64_t m : {1, 4, 16, 64, 512, 2048}) {
      const int64_t count = m > 16 ? 4 : matrices;
      const Buffer x = backend.allocate(m * k * 4).value();  // like a model's: huge pages where the system grants them
      const Buffer y = backend.allocate(m * n * 4).value();
      std::memset(x.data(), 0x11, static_cast<size_t>(x.bytes()));
      Arena arena(workspace.data(), workspace.bytes());
      ops::Context context{&backend.executor(), &arena};
      const double s = best_seconds([&] {
        for (int64_t i = 0; i < count; ++i) {  // one launch per matrix, as in a model
          const ops::WeightView w{memory.data() + i * backend.weight_bytes(type, n, k), scale.data(), type, n, k};
          const ops::GemmOutput out{w, {y.data(), x_type, m, n, n}};
          backend.ops().gemm.run(context, {.x = {x.data(), x_type, m, k, k}, .outputs = {&out, 1}});
        }
      });
      const double bytes = static_cast<double>(count * backend.weight_bytes(type, n, k));
      fmt::print("{:8} m={:<5} {:8.2f} us/launch {:7.1f} GB/s of weights ({:3.0f}% of reading)  {:8.1f} GFLOP/s\n", dtype_name(type), m,
                 s / static_cast<double>(count) * 1e6, bytes / s / 1e9, 100 * bytes / s / bandwidth,
                 2.0 * static_cast<double>(m * n * k * count) / s / 1e9);
    }
  }
  return 0;
}
