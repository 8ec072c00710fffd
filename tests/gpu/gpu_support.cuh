// What the GPU programs share: checked calls, device arrays, random data, timing of captured graphs.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#define CUDA_OK(call)                                                                                 \
  do {                                                                                                \
    const cudaError_t error_ = (call);                                                                \
    if (error_ != cudaSuccess) {                                                                      \
      std::fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error_)); \
      std::exit(2);                                                                                   \
    }                                                                                                 \
  } while (false)

namespace baton::gpu_test {

template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;
  explicit DeviceArray(int64_t count) : count_(count) {
    CUDA_OK(cudaMalloc(&data_, static_cast<size_t>(std::max<int64_t>(count, 1)) * sizeof(T)));
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(static_cast<int64_t>(host.size())) {
    CUDA_OK(cudaMemcpy(data_, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceArray(DeviceArray&& o) noexcept { *this = static_cast<DeviceArray&&>(o); }
  DeviceArray& operator=(DeviceArray&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(count_, o.count_);
    return *this;
  }
  ~DeviceArray() { cudaFree(data_); }
  T* get() const { return data_; }
  int64_t count() const { return count_; }
  std::vector<T> host() const {
    std::vector<T> h(static_cast<size_t>(count_));
    CUDA_OK(cudaMemcpy(h.data(), data_, h.size() * sizeof(T), cudaMemcpyDeviceToHost));
    return h;
  }
  void fill_bytes(int value) { CUDA_OK(cudaMemset(data_, value, static_cast<size_t>(count_) * sizeof(T))); }

 private:
  T* data_ = nullptr;
  int64_t count_ = 0;
};

// SplitMix64: a value per index, the same on host and device.
__host__ __device__ inline uint64_t mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}
__host__ __device__ inline float unit(uint64_t x) { return (static_cast<float>(mix(x) >> 40) + 0.5F) * 0x1p-24F; }
// Roughly normal, unit variance: sum of four uniforms.
__host__ __device__ inline float normal(uint64_t x) {
  const uint64_t m = mix(x);
  float s = 0;
  for (int i = 0; i < 4; ++i) s += static_cast<float>((m >> (16 * i)) & 0xFFFF) * 0x1p-16F;
  return (s - 2.0F) * 1.7320508F;
}

// Random e4m3 codes without NaN. kNormal: magnitudes as after quantising normal data (most codes in the upper binades).
__host__ __device__ inline uint8_t random_code(uint64_t x) {
  const uint64_t m = mix(x);
  // exponent 15 is kept to mantissas 0 ... 6; exponents follow a halving distribution below the top, like normal data scaled to 448
  int exponent = 14;
  for (uint64_t bits = m >> 8; (bits & 1) != 0 && exponent > 1; bits >>= 1) --exponent;
  return static_cast<uint8_t>(((m & 1) << 7) | (static_cast<uint64_t>(exponent) << 3) | ((m >> 1) & 7));
}
__global__ void fill_codes(uint64_t* out, int64_t words, uint64_t seed) {
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < words;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    uint64_t w = 0;
    for (int b = 0; b < 8; ++b) w |= static_cast<uint64_t>(random_code(seed + static_cast<uint64_t>(i) * 8 + b)) << (8 * b);
    out[i] = w;
  }
}

inline void parallel_for(int64_t count, const std::function<void(int64_t)>& fn) {
  const int64_t threads = std::max<int64_t>(1, std::min<int64_t>(std::thread::hardware_concurrency(), count));
  std::vector<std::thread> pool;
  for (int64_t t = 0; t < threads; ++t)
    pool.emplace_back([&, t] {
      for (int64_t i = t; i < count; i += threads) fn(i);
    });
  for (auto& t : pool) t.join();
}

// Median, least and largest time in us of replays of what `record` enqueues.
struct Timing {
  double median = 0;
  double least = 0;
  double largest = 0;
};
// burst: the device rests before every replay, so that its clocks are those of a short piece of work; otherwise it is kept busy.
inline Timing time_graph(const std::function<void(cudaStream_t)>& record, int replays, int warmups = 2, bool burst = false) {
  cudaStream_t stream;
  CUDA_OK(cudaStreamCreate(&stream));
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  CUDA_OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  record(stream);
  CUDA_OK(cudaStreamEndCapture(stream, &graph));
  CUDA_OK(cudaGraphInstantiate(&exec, graph, 0));
  std::vector<cudaEvent_t> events(2 * static_cast<size_t>(replays));
  for (auto& e : events) CUDA_OK(cudaEventCreate(&e));
  for (int i = 0; i < warmups; ++i) CUDA_OK(cudaGraphLaunch(exec, stream));
  for (int i = 0; i < replays; ++i) {
    if (burst) {
      CUDA_OK(cudaStreamSynchronize(stream));
      std::this_thread::sleep_for(std::chrono::milliseconds(400));
    }
    CUDA_OK(cudaEventRecord(events[2 * static_cast<size_t>(i)], stream));
    CUDA_OK(cudaGraphLaunch(exec, stream));
    CUDA_OK(cudaEventRecord(events[2 * static_cast<size_t>(i) + 1], stream));
  }
  CUDA_OK(cudaStreamSynchronize(stream));
  std::vector<double> us;
  for (int i = 0; i < replays; ++i) {
    float ms = 0;
    CUDA_OK(cudaEventElapsedTime(&ms, events[2 * static_cast<size_t>(i)], events[2 * static_cast<size_t>(i) + 1]));
    us.push_back(ms * 1e3);
  }
  for (auto& e : events) cudaEventDestroy(e);
  CUDA_OK(cudaGraphExecDestroy(exec));
  CUDA_OK(cudaGraphDestroy(graph));
  CUDA_OK(cudaStreamDestroy(stream));
  std::sort(us.begin(), us.end());
  return {us[us.size() / 2], us.front(), us.back()};
}

}  // namespace baton::gpu_test
