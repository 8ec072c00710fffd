// Runs device code of the CUDA kernels on a CPU, for tests on machines without a GPU: what the sources say is computed, instruction by
// instruction, with the index arithmetic, barriers and shuffles as written. The headers under include/ stand in for CUDA's and for
// ops/cuda/device. Slow (256 threads, a barrier for every warp-wide operation), blind to races and to speed.
#pragma once

#include <barrier>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

struct uint2 {
  unsigned x, y;
};
struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __grid_constant__
#define __align__(n)
#define __launch_bounds__(...)
#define threadIdx ::emulated::thread_index
#define blockIdx ::emulated::block_index
#define gridDim ::emulated::grid_size

namespace emulated {

inline thread_local uint3 thread_index{};
inline thread_local uint3 block_index{};
inline uint3 grid_size{};

struct Block {
  explicit Block(unsigned threads) : all(threads), exchange(threads / 32) {
    for (unsigned w = 0; w < threads / 32; ++w) warps.push_back(std::make_unique<std::barrier<>>(32));
  }
  std::barrier<> all;
  std::vector<std::unique_ptr<std::barrier<>>> warps;
  struct Words {
    uint32_t of[32][8];
  };
  std::vector<Words> exchange;  // what the lanes of a warp show each other
};
inline Block* block = nullptr;
inline std::byte* shared = nullptr;  // of the block: the array behind the kernel's `shared_memory`, which the test defines

inline int lane() { return static_cast<int>(thread_index.x) % 32; }
inline Block::Words& words() { return block->exchange[thread_index.x / 32]; }
inline void sync_warp() { block->warps[thread_index.x / 32]->arrive_and_wait(); }

// One block of a kernel.
inline void run_block(unsigned threads, unsigned index, const std::function<void()>& kernel) {
  Block state(threads);
  block = &state;
  std::vector<std::thread> pool;
  for (unsigned t = 0; t < threads; ++t)
    pool.emplace_back([&, t] {
      thread_index = {t, 0, 0};
      block_index = {index, 0, 0};
      kernel();
    });
  for (auto& t : pool) t.join();
  block = nullptr;
}

}  // namespace emulated

inline void __syncthreads() { emulated::block->all.arrive_and_wait(); }
inline void __syncwarp() { emulated::sync_warp(); }
inline float __shfl_xor_sync(unsigned, float v, int mask) {
  std::memcpy(&emulated::words().of[emulated::lane()][0], &v, 4);
  emulated::sync_warp();
  float r = 0;
  std::memcpy(&r, &emulated::words().of[emulated::lane() ^ mask][0], 4);
  emulated::sync_warp();
  return r;
}
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __uint_as_float(uint32_t bits) {
  float f = 0;
  std::memcpy(&f, &bits, 4);
  return f;
}
template <class T>
T __ldg(const T* p) {
  return *p;
}
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
