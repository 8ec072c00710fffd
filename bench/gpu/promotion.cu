// How much of the tensor cores' time survives two-level accumulation: inner loops on operands that stay in shared memory, counted in clock
// cycles so that power and clocks do not matter. Rows on the M side, as in the prefill kernel. usage: promotion
#include <string>

#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/wgmma.cuh"
#include "ops/cuda/device/wgmma_e4m3.cuh"
#include "tests/gpu/gpu_support.cuh"

namespace baton::gpu_test {
namespace {

enum Mode {
  kPlain,       // batch, wait, add; batch, wait, add
  kHalfAdd,     // half of the additions
  kTurns,       // kPlain, warpgroups take turns to issue
  kTwoScratch,  // the second batch runs while the first is added
  kLateAdd      // kTwoScratch, and the second is added while the next step's first runs (two steps a loop)
};

template <int kWidth>
__device__ __forceinline__ void batch(float (&d)[kWidth / 2], uint64_t a, uint64_t b) {
  cuda::wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4; ++i) cuda::WgmmaE4m3<kWidth>::run(d, a + 2 * i, b + 2 * i, i);
  cuda::wgmma_commit();
}
template <int kCount, int kFrom = 0>
__device__ __forceinline__ void add(float (&sum)[kCount], const float (&part)[kCount], float s0, float s1) {
#pragma unroll
  for (int i = kFrom; i < kCount; ++i) sum[i] = fmaf(part[i], i % 4 < 2 ? s0 : s1, sum[i]);
}

// kGroups warpgroups of 64 rows; kPieces batches of kWidth columns a step.
template <int kGroups, int kWidth, int kPieces, int kMode>
__global__ void __launch_bounds__(kGroups * 128, 1) loop(const uint4* random, float* out, long long* cycles, int steps) {
  extern __shared__ __align__(1024) uint8_t memory[];
  constexpr int kStage = kGroups * 8192 + kPieces * kWidth * 128;
  constexpr int kStages = 2;
  for (int i = threadIdx.x; i < kStages * kStage / 16; i += kGroups * 128) reinterpret_cast<uint4*>(memory)[i] = random[i % 4096];
  cuda::fence_async_shared();
  __syncthreads();
  const int group = threadIdx.x / 128;
  float s0 = 1.0F + static_cast<float>(threadIdx.x % 4);
  const float s1 = 0.5F;
  float sum[kPieces][kWidth / 2] = {};
  float part[kWidth / 2];
  float other[kWidth / 2];
  const auto a = [&](int s) { return cuda::swizzled_operand(memory + s % kStages * kStage + group * 8192); };
  const auto b = [&](int s, int piece) {
    return cuda::swizzled_operand(memory + s % kStages * kStage + kGroups * 8192 + piece * kWidth * 128);
  };
  const long long begin = clock64();
  if constexpr (kMode == kTurns) {
    if (group == 1) asm volatile("bar.arrive 4, 256;" ::: "memory");
  }
  for (int s = 0; s < steps; ++s) {
    s0 += 1e-6F;
    if constexpr (kMode == kTwoScratch && kPieces == 2) {
      batch<kWidth>(part, a(s), b(s, 0));
      batch<kWidth>(other, a(s), b(s, 1));
      cuda::wgmma_wait<1>();
      cuda::pin_registers(part);
      add(sum[0], part, s0, s1);
      cuda::wgmma_wait<0>();
      cuda::pin_registers(other);
      add(sum[1], other, s0, s1);
    } else if constexpr (kMode == kLateAdd && kPieces == 2) {
      batch<kWidth>(part, a(s), b(s, 0));
#pragma unroll
      for (int u = 0; u < 4; ++u) {
        batch<kWidth>(other, a(s + u), b(s + u, 1));
        cuda::wgmma_wait<1>();
        cuda::pin_registers(part);
        add(sum[0], part, s0, s1);
        if (u < 3) {
          batch<kWidth>(part, a(s + u + 1), b(s + u + 1, 0));
          cuda::wgmma_wait<1>();
        } else {
          cuda::wgmma_wait<0>();
        }
        cuda::pin_registers(other);
        add(sum[1], other, s0, s1);
      }
      s += 3;
    } else {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        if constexpr (kMode == kTurns) asm volatile("bar.sync %0, 256;" ::"r"(4 + group) : "memory");
        batch<kWidth>(part, a(s), b(s, piece));
        if constexpr (kMode == kTurns) asm volatile("bar.arrive %0, 256;" ::"r"(5 - group) : "memory");
        cuda::wgmma_wait<0>();
        if constexpr (kMode == kPlain || kMode == kTurns) add(sum[piece], part, s0, s1);
        if constexpr (kMode == kHalfAdd) add<kWidth / 2, kWidth / 4>(sum[piece], part, s0, s1);
      }
    }
  }
  cuda::wgmma_wait<0>();
  if constexpr (kMode == kTurns) {
    if (group == 0) asm volatile("bar.sync 4, 256;" ::: "memory");
  }
  const long long end = clock64();
  float total = 0;
#pragma unroll
  for (int i = 0; i < kWidth / 2; ++i) {
    total += part[i];
    for (int piece = 0; piece < kPieces; ++piece) total += sum[piece][i];
  }
  out[blockIdx.x * kGroups * 128 + threadIdx.x] = total;
  if (threadIdx.x == 0) cycles[blockIdx.x] = end - begin;
}

template <int kGroups, int kWidth, int kPieces, int kMode>
void measure(const char* name) {
  constexpr int kBytes = 2 * (kGroups * 8192 + kPieces * kWidth * 128);
  const int blocks = cuda::multiprocessors();
  const auto kernel = loop<kGroups, kWidth, kPieces, kMode>;
  CUDA_OK(cuda::allow_shared(kernel, kBytes));
  DeviceArray<uint8_t> random(65536);
  fill_codes<<<64, 256>>>(reinterpret_cast<uint64_t*>(random.get()), 8192, 5);
  DeviceArray<float> out(blocks * kGroups * 128);
  DeviceArray<long long> cycles(blocks);
  const int steps = 2000;
  for (int i = 0; i < 2; ++i)
    kernel<<<blocks, kGroups * 128, kBytes>>>(reinterpret_cast<const uint4*>(random.get()), out.get(), cycles.get(), steps);
  CUDA_OK(cudaDeviceSynchronize());
  auto c = cycles.host();
  std::sort(c.begin(), c.end());
  const double ideal = 2.0 * kGroups * 64 * kWidth * kPieces * 128 / 8192;
  const double measured = static_cast<double>(c[c.size() / 2]) / steps;
  std::printf("%-52s %d x 64 rows, %d x %d columns: %7.1f cycles a step, %5.1f %% of the tensor cores\n", name, kGroups, kPieces, kWidth,
              measured, 100 * ideal / measured);
}

}  // namespace
}  // namespace baton::gpu_test

int main() {
  using namespace baton::gpu_test;
  measure<2, 128, 2, kPlain>("batch, wait, add");
  measure<2, 128, 2, kHalfAdd>("half of the additions");
  measure<2, 128, 2, kTurns>("taking turns");
  measure<1, 128, 2, kPlain>("one warpgroup alone");
  measure<2, 96, 2, kTwoScratch>("two scratches");
  measure<2, 96, 2, kLateAdd>("two scratches, added late");
  measure<2, 64, 2, kLateAdd>("two scratches, added late");
  measure<2, 192, 1, kPlain>("one wide batch");
  measure<2, 192, 1, kTurns>("one wide batch, taking turns");
  measure<3, 128, 1, kPlain>("three warpgroups");
  return 0;
}
