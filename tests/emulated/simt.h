// Runs device code of the CUDA kernels on a CPU, for tests on machines without a GPU: what the sources say is computed, instruction by
// instruction, with the index arithmetic, barriers and shuffles as written. The headers under include/ stand in for CUDA's and for
// ops/cuda/device. The threads of a block are coroutines that run in turn until they wait, so a run is the same every time and a deadlock
// is found; races and speed are not.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

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

struct Fiber {
  static constexpr size_t kStackBytes = 256 << 10;
  ucontext_t context{};
  jmp_buf place{};  // where it waits
  bool begun = false;
  unsigned vote = 0;  // number of its next __syncthreads_count
  bool done = false;
#ifdef __SANITIZE_THREAD__
  void* tsan = __tsan_create_fiber(0);
  ~Fiber() { __tsan_destroy_fiber(tsan); }
#endif
};

inline uint3 thread_index{};
inline uint3 block_index{};
inline uint3 grid_size{};
inline Fiber* fiber = nullptr;  // that runs
inline ucontext_t scheduler{};
inline jmp_buf scheduler_place{};
inline uint64_t progress = 0;  // counts all that can end somebody's wait
#ifdef __SANITIZE_THREAD__
inline void* scheduler_tsan = nullptr;
#endif

// Lets the other threads of the block run; and the scheduler's part: lets `next` run until it yields. A jump costs a fraction of
// swapcontext(), which saves the signal mask; but sanitizers do not follow jumps between stacks.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline void yield() {
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(scheduler_tsan, 0);
#endif
  swapcontext(&fiber->context, &scheduler);
}
inline void resume(Fiber& next) {
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(next.tsan, 0);
#endif
  swapcontext(&scheduler, &next.context);
}
#else
inline void yield() {
  if (_setjmp(fiber->place) == 0) _longjmp(scheduler_place, 1);
}
inline void resume(Fiber& next) {
  if (_setjmp(scheduler_place) != 0) return;
  if (next.begun) _longjmp(next.place, 1);
  next.begun = true;
  setcontext(&next.context);
}
#endif

class Rendezvous {
 public:
  explicit Rendezvous(unsigned threads) : threads_(threads) {}
  void arrive_and_wait() {
    const unsigned phase = phase_;
    ++progress;
    if (++arrived_ == threads_) {
      arrived_ = 0;
      ++phase_;
    }
    while (phase_ == phase) yield();
  }

 private:
  unsigned threads_;
  unsigned arrived_ = 0;
  unsigned phase_ = 0;
};

struct Block {
  explicit Block(unsigned threads) : all(threads), warps(threads / 32, Rendezvous(32)), exchange(threads / 32) {}
  Rendezvous all;
  std::vector<Rendezvous> warps;
  std::map<unsigned, Rendezvous> named;
  int votes[3] = {};  // of three calls in a row
  struct Words {
    uint32_t of[32][8];
  };
  std::vector<Words> exchange;  // what the lanes of a warp show each other
};
inline Block* block = nullptr;
inline std::byte* shared = nullptr;  // of the block: the array behind the kernel's `shared_memory`, which the test defines
inline const std::function<void()>* kernel = nullptr;

inline int lane() { return static_cast<int>(thread_index.x) % 32; }
inline Block::Words& words() { return block->exchange[thread_index.x / 32]; }
inline void sync_warp() { block->warps[thread_index.x / 32].arrive_and_wait(); }

inline void enter() {
  (*kernel)();
  fiber->done = true;
  ++progress;
  yield();
}

// One block of a kernel.
inline void run_block(unsigned threads, unsigned index, const std::function<void()>& of_thread) {
  Block state(threads);
  block = &state;
  kernel = &of_thread;
  block_index = {index, 0, 0};
#ifdef __SANITIZE_THREAD__
  scheduler_tsan = __tsan_get_current_fiber();
#endif
  static std::vector<std::unique_ptr<std::byte[]>> stacks;  // of all blocks, one after the other
  while (stacks.size() < threads) stacks.push_back(std::make_unique_for_overwrite<std::byte[]>(Fiber::kStackBytes));
  std::vector<Fiber> fibers(threads);
  for (unsigned t = 0; t < threads; ++t) {
    getcontext(&fibers[t].context);
    fibers[t].context.uc_stack = {stacks[t].get(), 0, Fiber::kStackBytes};
    makecontext(&fibers[t].context, enter, 0);
  }
  bool backwards = false;  // every other pass, so that neither end of the block is always ahead
  for (unsigned left = threads; left > 0; backwards = !backwards) {
    const uint64_t before = progress;
    for (unsigned i = 0; i < threads; ++i) {
      const unsigned t = backwards ? threads - 1 - i : i;
      if (fibers[t].done) continue;
      fiber = &fibers[t];
      thread_index = {t, 0, 0};
      resume(*fiber);
      if (fiber->done) --left;
    }
    if (progress == before) {
      std::fprintf(stderr, "emulated block %u: %u threads wait for each other\n", index, left);
      std::abort();
    }
  }
  block = nullptr;
}

}  // namespace emulated

inline void __syncthreads() { emulated::block->all.arrive_and_wait(); }
inline void __syncwarp() { emulated::sync_warp(); }
inline int __syncthreads_count(int predicate) {
  const unsigned turn = emulated::fiber->vote++;
  emulated::block->votes[turn % 3] += predicate != 0 ? 1 : 0;
  __syncthreads();
  if (emulated::thread_index.x == 0) emulated::block->votes[(turn + 2) % 3] = 0;  // all have read the one before
  return emulated::block->votes[turn % 3];
}
inline void __trap() { std::abort(); }

namespace emulated {
// What lane `from` shows.
template <class T>
T exchange(T v, int from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8);
  std::memcpy(&words().of[lane()][0], &v, sizeof(T));
  sync_warp();
  T r{};
  std::memcpy(&r, &words().of[from & 31][0], sizeof(T));
  sync_warp();
  return r;
}
template <class T, class Fn>
T over_lanes(T v, const Fn& fn) {
  static_assert(sizeof(T) == 4);
  std::memcpy(&words().of[lane()][0], &v, 4);
  sync_warp();
  T r{};
  std::memcpy(&r, &words().of[0][0], 4);
  for (int i = 1; i < 32; ++i) {
    T next{};
    std::memcpy(&next, &words().of[i][0], 4);
    r = fn(r, next);
  }
  sync_warp();
  return r;
}
}  // namespace emulated

template <class T>
T __shfl_xor_sync(unsigned, T v, int mask) {
  return emulated::exchange(v, emulated::lane() ^ mask);
}
template <class T>
T __shfl_sync(unsigned, T v, int from) {
  return emulated::exchange(v, from);
}
template <class T>
T __shfl_up_sync(unsigned, T v, int step) {
  return emulated::exchange(v, emulated::lane() < step ? emulated::lane() : emulated::lane() - step);
}
inline uint32_t __ballot_sync(unsigned, bool predicate) {
  return emulated::over_lanes(predicate ? 1U << emulated::lane() : 0U, [](uint32_t a, uint32_t b) { return a | b; });
}
inline bool __any_sync(unsigned mask, bool predicate) { return __ballot_sync(mask, predicate) != 0; }
inline uint32_t __reduce_add_sync(unsigned, uint32_t v) {
  return emulated::over_lanes(v, [](uint32_t a, uint32_t b) { return a + b; });
}
inline uint32_t __reduce_min_sync(unsigned, uint32_t v) {
  return emulated::over_lanes(v, [](uint32_t a, uint32_t b) { return a < b ? a : b; });
}
inline uint32_t __reduce_max_sync(unsigned, uint32_t v) {
  return emulated::over_lanes(v, [](uint32_t a, uint32_t b) { return a > b ? a : b; });
}
// Byte i of the result is the byte of y:x that digit i of the selector names.
inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector) {
  uint32_t r = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t from = selector >> (4 * i) & 7;
    r |= ((from < 4 ? x : y) >> (from % 4 * 8) & 0xFF) << (8 * i);
  }
  return r;
}
inline int __popc(uint32_t v) { return __builtin_popcount(v); }
inline uint32_t atomicAdd(uint32_t* p, uint32_t v) { return std::exchange(*p, *p + v); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline uint32_t __float_as_uint(float f) {
  uint32_t bits = 0;
  std::memcpy(&bits, &f, 4);
  return bits;
}
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
inline uint32_t max(uint32_t a, uint32_t b) { return a > b ? a : b; }
using std::isnan;
