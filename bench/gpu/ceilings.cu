// Measures what the device can do at most, in the ways that the kernels use it: floors are taken against these figures.
//
// usage: ceilings [--json FILE] [--seconds S of each sustained run]
#include <cuda_bf16.h>

#include <cmath>
#include <cstring>
#include <string>

#include "ops/cuda/device/bulk_copy.cuh"
#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/device/launch.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/device/tensor_map.cuh"
#include "ops/cuda/device/wgmma.cuh"
#include "ops/cuda/device/wgmma_bf16.cuh"
#include "ops/cuda/device/wgmma_e4m3.cuh"
#include "tests/gpu/gpu_support.cuh"

namespace baton::gpu_test {
namespace {

using cuda::Barrier;
using cuda::RingCursor;

std::FILE* json = nullptr;
void report(const char* name, const char* variant, double value, const char* unit) {
  std::printf("%-26s %-34s %10.2f %s\n", name, variant, value, unit);
  std::fflush(stdout);
  if (json != nullptr)
    std::fprintf(json, "{\"ceiling\":\"%s\",\"variant\":\"%s\",\"value\":%.3f,\"unit\":\"%s\"}\n", name, variant, value, unit);
}

// `lanes` threads of each block's only warp keep `stages` copies of `chunk` bytes in flight each; nobody reads them. Order 0: each block
// walks its own contiguous part; order 1: blocks interleave chunks; order 2: pseudo-random multiples of `chunk` (`chunks` is a power of
// two).
__global__ void __launch_bounds__(32)
    read_stream(const uint8_t* data, int64_t chunks, uint32_t chunk, int stages, int order, int64_t per_lane) {
  extern __shared__ __align__(1024) uint8_t memory[];
  __shared__ Barrier barriers[128];
  Barrier* full = barriers + threadIdx.x * stages;
  const uint32_t room = (chunk + 127) / 128 * 128;
  uint8_t* ring = memory + threadIdx.x * stages * room;
  for (int i = 0; i < stages; ++i) full[i].init(1);
  cuda::fence_barrier_init();
  const uint64_t policy = cuda::policy_evict_first();
  const int64_t walkers = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t me = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const auto address = [&](int64_t i) {
    if (order == 0) return data + (me * per_lane + i) * chunk;
    if (order == 1) return data + (i * walkers + me) * chunk;
    return data + static_cast<int64_t>(mix(static_cast<uint64_t>(i * walkers + me)) & static_cast<uint64_t>(chunks - 1)) * chunk;
  };
  RingCursor head;
  RingCursor tail;
  for (int64_t i = 0; i < per_lane + stages; ++i) {
    if (i >= stages) {
      full[tail.index].wait(tail.parity);
      tail.advance(stages);
    }
    if (i < per_lane) {
      full[head.index].expect(chunk);
      cuda::bulk_load(ring + head.index * room, address(i), chunk, full[head.index], policy);
      head.advance(stages);
    }
  }
}

// Pairs of blocks read 32 KB a step that both need, each fetching half and multicasting it: what L2 delivers to shared memory in that way.
__global__ void __cluster_dims__(2) __launch_bounds__(32) read_multicast(const uint8_t* data, int chunks, int stages, int steps) {
  extern __shared__ __align__(1024) uint8_t ring[];
  __shared__ Barrier full[16];
  __shared__ Barrier empty[16];
  const uint32_t rank = cuda::cluster_rank();
  if (threadIdx.x == 0) {
    for (int i = 0; i < stages; ++i) {
      full[i].init(1);
      empty[i].init(2);
    }
    cuda::fence_barrier_init();
  }
  cuda::cluster_sync();
  if (threadIdx.x == 0) {
    const uint64_t policy = cuda::policy_evict_normal();
    RingCursor head;
    RingCursor tail;
    for (int i = 0; i < steps + stages; ++i) {
      if (i >= stages) {
        full[tail.index].wait(tail.parity);
        empty[tail.index].arrive_remote(0);
        empty[tail.index].arrive_remote(1);
        tail.advance(stages);
      }
      if (i < steps) {
        empty[head.index].wait(head.parity ^ 1);
        full[head.index].expect(32768);
        const int chunk =
            static_cast<int>(mix(static_cast<uint64_t>(i) * 1009 + cuda::cluster_index()) & static_cast<uint64_t>(chunks - 1));
        cuda::bulk_load_multicast(ring + head.index * 32768 + rank * 16384, data + (2 * chunk + rank) * 16384LL, 16384, full[head.index], 3,
                                  policy);
        head.advance(stages);
      }
    }
  }
  __syncwarp();
  cuda::cluster_sync();
}

// The same stream through tensor maps: boxes of 128 rows x 128 bytes out of rows of 4,096 bytes.
__global__ void __launch_bounds__(32) read_boxes(const __grid_constant__ CUtensorMap map, int row_tiles, int stages) {
  extern __shared__ __align__(1024) uint8_t ring[];
  __shared__ Barrier full[64];
  if (threadIdx.x != 0) return;
  for (int i = 0; i < stages; ++i) full[i].init(1);
  cuda::fence_barrier_init();
  const uint64_t policy = cuda::policy_evict_first();
  RingCursor head;
  RingCursor tail;
  int64_t issued = 0;
  int64_t done = 0;
  const auto drain = [&] {
    full[tail.index].wait(tail.parity);
    tail.advance(stages);
    ++done;
  };
  for (int tile = blockIdx.x; tile < row_tiles; tile += gridDim.x)
    for (int k = 0; k < 32; ++k) {
      if (issued - done == stages) drain();
      full[head.index].expect(16384);
      cuda::tensor_load(ring + head.index * 16384, map, 128 * k, 128 * tile, full[head.index], policy);
      head.advance(stages);
      ++issued;
    }
  while (done < issued) drain();
}

__global__ void copy_vectors(uint4* to, const uint4* from, int64_t count) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x; i < count; i += 4 * step) {
    uint4 v[4];
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (i + j * step < count) v[j] = __ldcs(from + i + j * step);
#pragma unroll
    for (int j = 0; j < 4; ++j)
      if (i + j * step < count) __stcs(to + i + j * step, v[j]);
  }
}

// Products on random operands that stay in shared memory. kPromote: the scratch of four products is added in float, as block-FP8 needs.
template <bool kFp8, int kWidth, bool kPromote>
__global__ void __launch_bounds__(256, 1) multiply(const uint4* random, float* out, int steps) {
  extern __shared__ __align__(1024) uint8_t memory[];
  constexpr int kA = 8192;  // 64 rows x 128 bytes of each warpgroup
  constexpr int kStage = 2 * kA + kWidth * 128;
  constexpr int kStages = 3;
  for (int i = threadIdx.x; i < kStages * kStage / 16; i += 256) reinterpret_cast<uint4*>(memory)[i] = random[i];
  cuda::fence_async_shared();
  __syncthreads();
  float part[kWidth / 2];
  float sum[kPromote ? kWidth / 2 : 1] = {};
  for (int i = 0; i < kWidth / 2; ++i) part[i] = 0;
  for (int s = 0; s < steps; ++s) {
    const uint8_t* stage = memory + s % kStages * kStage;
    const uint64_t a = cuda::swizzled_operand(stage + threadIdx.x / 128 * kA);
    const uint64_t b = cuda::swizzled_operand(stage + 2 * kA);
    cuda::wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kFp8) {
        cuda::WgmmaE4m3<kWidth>::run(part, a + 2 * i, b + 2 * i, kPromote ? i : 1);
      } else {
        cuda::WgmmaBf16<kWidth>::run(part, a + 2 * i, b + 2 * i, kPromote ? i : 1);
      }
    }
    cuda::wgmma_commit();
    cuda::wgmma_wait<0>();
    if constexpr (kPromote) {
      const float scale = 1.0F + static_cast<float>(s & 1) * 0x1p-10F;
#pragma unroll
      for (int i = 0; i < kWidth / 2; ++i) sum[i] = fmaf(part[i], scale, sum[i]);
    }
  }
  float total = 0;
  for (int i = 0; i < kWidth / 2; ++i) total += kPromote ? sum[kPromote ? i : 0] : part[i];
  out[blockIdx.x * 256 + threadIdx.x] = total;
}

__global__ void convert_codes(uint32_t* out, uint32_t seed, int rounds) {
  uint32_t v[8];
  for (int i = 0; i < 8; ++i) v[i] = (seed + threadIdx.x * 8 + i) & 0x7777U;
  for (int r = 0; r < rounds; ++r) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const __half2 h = cuda::unpack_e4m3x2(static_cast<uint16_t>(v[i]));
      v[i] = *reinterpret_cast<const uint32_t*>(&h) & 0x7777U;  // one extra instruction a conversion, on another pipe
    }
  }
  uint32_t x = 0;
  for (int i = 0; i < 8; ++i) x ^= v[i];
  out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

__global__ void nothing(int* p) {
  cuda::wait_for_predecessor();
  cuda::allow_successor();
  if (p != nullptr && threadIdx.x == 1000) *p = 1;
}

void measure_reads(int blocks) {
  const int64_t bytes = int64_t{8} << 30;
  DeviceArray<uint8_t> data(bytes);
  fill_codes<<<1056, 256>>>(reinterpret_cast<uint64_t*>(data.get()), bytes / 8, 1);
  CUDA_OK(cuda::allow_shared(read_stream, 200 * 1024));
  CUDA_OK(cuda::allow_shared(read_boxes, 200 * 1024));
  const auto stream_rate = [&](int64_t chunks, uint32_t chunk, int lanes, int stages, int order, int64_t total) {
    const int64_t per_lane = total / chunk / blocks / lanes;
    const auto t = time_graph(
        [&](cudaStream_t s) {
          read_stream<<<blocks, lanes, lanes * stages*((chunk + 127) / 128 * 128), s>>>(data.get(), chunks, chunk, stages, order, per_lane);
        },
        8);
    return static_cast<double>(per_lane) * lanes * blocks * chunk / t.median * 1e-6;
  };
  struct Depth {
    uint32_t chunk;
    int stages;
  };
  for (const Depth d : {Depth{12288, 3}, Depth{16384, 4}, Depth{16384, 6}, Depth{16384, 8}, Depth{16384, 10}, Depth{32768, 5},
                        Depth{4096, 40}, Depth{8192, 20}})
    for (const int order : {0, 1}) {
      char name[64];
      std::snprintf(name, sizeof name, "%u KB x %d = %u KB an SM, %s", d.chunk / 1024, d.stages, d.chunk * d.stages / 1024,
                    order == 0 ? "own part" : "interleaved");
      report("read stream", name, stream_rate(0, d.chunk, 1, d.stages, order, bytes), "TB/s");
    }
  CUtensorMap map;
  if (cuda::make_tensor_map(&map, data.get(), CU_TENSOR_MAP_DATA_TYPE_UINT8, 1, bytes / 4096, 4096, 4096, 128, 128)) {
    for (const int stages : {6, 10}) {
      const auto t = time_graph(
          [&](cudaStream_t s) { read_boxes<<<blocks, 32, stages * 16384, s>>>(map, static_cast<int>(bytes / 4096 / 128), stages); }, 8);
      report("read boxes of row-major", stages == 6 ? "128 x 128 B, 96 KB an SM" : "128 x 128 B, 160 KB an SM",
             static_cast<double>(bytes) / t.median * 1e-6, "TB/s");
    }
  }
  for (const int lanes : {1, 8, 32})
    for (const int64_t chunks : {int64_t{1} << 21, int64_t{1} << 13}) {  // 4.4 GB, 17 MB
      char name[64];
      std::snprintf(name, sizeof name, "2,112 B, %d lanes x %d in flight, %s", lanes, lanes == 1 ? 48 : 64 / lanes,
                    chunks > 100000 ? "HBM" : "L2");
      report("random bulk copies", name, stream_rate(chunks, 2112, lanes, lanes == 1 ? 48 : 64 / lanes, 2, int64_t{2} << 30), "TB/s");
    }
  for (const int stages : {4, 8, 12}) {
    char name[64];
    std::snprintf(name, sizeof name, "16 KB x %d, 16 MB re-read", stages);
    report("L2 read stream", name, stream_rate(1 << 10, 16384, 1, stages, 2, int64_t{8} << 30), "TB/s");
  }
  CUDA_OK(cuda::allow_shared(read_multicast, 200 * 1024));
  for (const int stages : {3, 6}) {
    const int steps = 2000;
    const auto m =
        time_graph([&](cudaStream_t s) { read_multicast<<<blocks, 32, stages * 32768, s>>>(data.get(), 1 << 9, stages, steps); }, 8);
    report("L2 multicast to pairs", stages == 3 ? "32 KB x 3, delivered" : "32 KB x 6, delivered",
           32768.0 * steps * blocks / m.median * 1e-6, "TB/s");
  }
  DeviceArray<uint8_t> to(bytes / 2);
  auto t = time_graph(
      [&](cudaStream_t s) {
        copy_vectors<<<blocks * 4, 512, 0, s>>>(reinterpret_cast<uint4*>(to.get()), reinterpret_cast<const uint4*>(data.get()),
                                                bytes / 2 / 16);
      },
      8);
  report("copy", "16 bytes a thread, x 4", static_cast<double>(bytes) / t.median * 1e-6, "TB/s");
  t = time_graph(
      [&](cudaStream_t s) { CUDA_OK(cudaMemcpyAsync(to.get(), data.get(), static_cast<size_t>(bytes / 2), cudaMemcpyDeviceToDevice, s)); },
      8);
  report("copy", "cudaMemcpyAsync", static_cast<double>(bytes) / t.median * 1e-6, "TB/s");
}

template <bool kFp8, int kWidth, bool kPromote>
void measure_multiply(const char* name, const char* variant, int blocks, double seconds) {
  constexpr int kBytes = 3 * (16384 + kWidth * 128);
  CUDA_OK(cuda::allow_shared(multiply<kFp8, kWidth, kPromote>, kBytes));
  DeviceArray<uint8_t> random(kBytes);
  if (kFp8) {
    fill_codes<<<64, 256>>>(reinterpret_cast<uint64_t*>(random.get()), kBytes / 8, 5);
  } else {
    std::vector<__nv_bfloat16> host(kBytes / 2);
    for (size_t i = 0; i < host.size(); ++i) host[i] = __float2bfloat16(normal(i));
    CUDA_OK(cudaMemcpy(random.get(), host.data(), kBytes, cudaMemcpyHostToDevice));
  }
  DeviceArray<float> out(blocks * 256);
  const int steps = 40000;
  const double flops = 2.0 * 128 * kWidth * (kFp8 ? 128 : 64) * steps * blocks;
  cudaEvent_t a, b;
  CUDA_OK(cudaEventCreate(&a));
  CUDA_OK(cudaEventCreate(&b));
  CUDA_OK(cudaDeviceSynchronize());
  double elapsed = 0;
  double burst = 0;
  double last = 0;
  for (int i = 0; elapsed < seconds; ++i) {
    CUDA_OK(cudaEventRecord(a));
    multiply<kFp8, kWidth, kPromote>
        <<<blocks, 256, kBytes>>>(reinterpret_cast<const uint4*>(random.get()), out.get(), i == 0 ? 100 : steps);
    CUDA_OK(cudaEventRecord(b));
    CUDA_OK(cudaEventSynchronize(b));
    float ms = 0;
    CUDA_OK(cudaEventElapsedTime(&ms, a, b));
    elapsed += ms * 1e-3;
    const double rate = flops / ms * 1e-9;
    if (i == 1) burst = rate;
    if (i > 0) last = rate;
  }
  char text[64];
  std::snprintf(text, sizeof text, "%s, first launch", variant);
  report(name, text, burst, "TFLOP/s");
  std::snprintf(text, sizeof text, "%s, after %.0f s", variant, seconds);
  report(name, text, last, "TFLOP/s");
  cudaEventDestroy(a);
  cudaEventDestroy(b);
}

void measure_rest(int blocks) {
  DeviceArray<uint32_t> out(int64_t{blocks} * 1024);
  const int rounds = 20000;
  auto t = time_graph([&](cudaStream_t s) { convert_codes<<<blocks, 1024, 0, s>>>(out.get(), 1, rounds); }, 5);
  report("e4m3x2 to f16x2", "values a second and device", 2.0 * 8 * rounds * 1024 * blocks / t.median * 1e-6, "T/s");
  constexpr int kChain = 500;
  for (const bool dependent : {false, true}) {
    t = time_graph(
        [&](cudaStream_t s) {
          for (int i = 0; i < kChain; ++i) CUDA_OK(cuda::launch(nothing, 132, 128, 0, 1, dependent, s, static_cast<int*>(nullptr)));
        },
        10);
    report("kernel in a graph", dependent ? "132 blocks, dependent launch" : "132 blocks", t.median / kChain, "us");
  }
}

}  // namespace
}  // namespace baton::gpu_test

int main(int argc, char** argv) {
  using namespace baton::gpu_test;
  double seconds = 4;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--json") == 0) json = std::fopen(argv[i + 1], "w");
    if (std::strcmp(argv[i], "--seconds") == 0) seconds = std::atof(argv[i + 1]);
  }
  const int blocks = baton::cuda::multiprocessors();
  measure_rest(blocks);
  measure_reads(blocks);
  measure_multiply<false, 256, false>("bf16 wgmma", "64x256 a warpgroup", blocks, seconds);
  measure_multiply<true, 256, false>("fp8 wgmma", "64x256, no promotion", blocks, seconds);
  measure_multiply<true, 128, true>("fp8 wgmma", "64x128, promotion", blocks, seconds);
  if (json != nullptr) std::fclose(json);
  return 0;
}
