// One site of mHC in one kernel: expand of the site before, 24 products and the square sum of each row, coefficients, collapse, RMSNorm,
// and the rows as e4m3 where they are wanted.
//
// A cluster of 8 blocks owns 16 rows; each block takes 512 of d of all four streams, so that expand and collapse are local and fn (786 KB)
// is read from L2 once a cluster. A thread keeps to its part of the streams, in the places where the products want them: lane 4 g + c of
// warp w owns the rows g and g + 8, columns 64 w + 32 h + 8 c ... + 7. They wait in shared memory between load, expand and collapse, which
// leaves registers for two blocks an SM: sixteen clusters of eight do not all find SMs of their own. Blocks exchange twice, by writing to
// each other: products, and square sums of u. A ninth warp runs Sinkhorn meanwhile: only the next site needs its result.
//
// Loops over a thread's parts stay loops: every instruction runs once or twice in a kernel of ten microseconds, and unrolled code (80 KB)
// spent more time on its way from memory than it took to run.
#pragma once

#include <cuda_runtime.h>

#include "ops/cuda/device/async_copy.cuh"
#include "ops/cuda/device/barrier.cuh"
#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/device/matrix.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/device/reduce.cuh"
#include "ops/cuda/mhc/coefficients.cuh"
#include "ops/cuda/mhc/params.h"

namespace baton::cuda::mhc {

inline constexpr int kWorkWarps = 8;
inline constexpr int kWorkThreads = kWorkWarps * 32;
inline constexpr int kMixThreads = kWorkThreads + 32;
inline constexpr int kPartial = kMix + 1;  // products and the square sum
inline constexpr int kFrom = kStreams + kStreams * kStreams;
static_assert(kSlice == kWorkWarps * 64);

// The race checker loses the block barrier in front of an arrival at the cluster's: it then calls what stands before that barrier and what
// is read between arrival and wait a race. For it the arrival comes last.
#ifdef BATON_RACECHECK
inline constexpr bool kLateArrival = true;
#else
inline constexpr bool kLateArrival = false;
#endif

struct MixShared {
  uint4 streams[2][2][kStreams][kWorkThreads];  // [32 columns][row g or g + 8]
  uint4 y[2][2][kWorkThreads];                  // then u, then x
  float products[kWorkWarps][kRows][kPartial];
  float parts[kCluster][kRows][kPartial];  // written by all blocks of the cluster
  float u_parts[kCluster][kRows];          // likewise
  float from[kRows][kFrom];
  float total[kRows][kPartial];
  float pre[kRows][kStreams];
  float per_warp[kWorkWarps][kRows];
  float norm_weight[kSlice];  // constants, here before the predecessor is waited for
  float base[kMix];
  float scale[3];
};

class Mixer {
 public:
  __device__ __forceinline__ Mixer(const MixParams& p, MixShared& s)
      : p_(p), s_(s), rank_(static_cast<int>(cluster_rank())), first_row_(int64_t{cluster_index()} * kRows),
        thread_(static_cast<int>(threadIdx.x)), warp_(thread_ / 32), lane_(thread_ % 32), g_(lane_ / 4), c_(lane_ % 4) {}

  __device__ __forceinline__ void run() {
    cluster_begin();
    prefetch_constants();
    wait_for_predecessor();
    if (warp_ < kWorkWarps) {
      load_rows();
      expand();
      multiply();
    }
    __syncthreads();
    cluster_wait();  // every block has begun
    for (int i = thread_; i < kRows * kPartial; i += kMixThreads) {
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWorkWarps; ++w) sum += s_.products[w][i / kPartial][i % kPartial];
#pragma unroll
      for (int q = 0; q < kCluster; ++q) store_remote(&s_.parts[rank_][i / kPartial][i % kPartial], static_cast<uint32_t>(q), sum);
    }
    cluster_sync();
    for (int i = thread_; i < kRows * kPartial; i += kMixThreads) {
      float sum = 0;
#pragma unroll
      for (int q = 0; q < kCluster; ++q) sum += s_.parts[q][i / kPartial][i % kPartial];
      s_.total[i / kPartial][i % kPartial] = sum;
    }
    __syncthreads();
    if (warp_ == kWorkWarps) {
      if (!kLateArrival) cluster_arrive();
      rest_of_coefficients();
      if (kLateArrival) cluster_arrive();
      cluster_wait();
    } else {
      collapse();
      cluster_sync();
      normalise();
    }
  }

 private:
  static constexpr uint32_t kWorkers = 1;  // named barrier

  __device__ __forceinline__ bool exists(int row) const { return first_row_ + row < p_.rows; }
  // Rows behind the end repeat the last one and are not stored.
  __device__ __forceinline__ int64_t global_row(int row) const { return exists(row) ? first_row_ + row : p_.rows - 1; }
  __device__ __forceinline__ int row_of(int half) const { return g_ + 8 * half; }
  __device__ __forceinline__ int64_t column(int h) const { return int64_t{rank_} * kSlice + warp_ * 64 + h * 32 + c_ * 8; }

  // fn is constant: its slice is on the way to L2 before the predecessor is waited for. So is the rest.
  __device__ __forceinline__ void prefetch_constants() {
    for (int i = thread_; i < kMix * kStreams * (kSlice / 64); i += kMixThreads) {
      const std::byte* line = p_.fn + (int64_t{i / (kSlice / 64)} * kWidth + int64_t{rank_} * kSlice + i % (kSlice / 64) * 64) * 2;
      prefetch_line(line);
    }
    for (int i = thread_; i < kSlice; i += kMixThreads) s_.norm_weight[i] = p_.norm_weight[rank_ * kSlice + i];
    if (thread_ < kMix) s_.base[thread_] = p_.base[thread_];
    if (thread_ < 3) s_.scale[thread_] = p_.scale[thread_];
  }

  __device__ __forceinline__ void load_rows() {
#pragma unroll 1
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int64_t row = global_row(row_of(half));
#pragma unroll
        for (int t = 0; t < kStreams; ++t)
          async_copy16(&s_.streams[h][half][t][thread_], p_.streams + (row * p_.stream_stride + t * kWidth + column(h)) * 2);
        if (p_.y != nullptr) async_copy16(&s_.y[h][half][thread_], p_.y + (row * p_.y_stride + column(h)) * 2);
      }
    async_commit();
    if (p_.y != nullptr)
      for (int i = thread_; i < kRows * kFrom; i += kWorkThreads) {
        const int64_t row = global_row(i / kFrom);
        const int n = i % kFrom;
        s_.from[i / kFrom][n] =
            n < kStreams ? p_.from_post[row * p_.from_post_stride + n] : p_.from_comb[row * p_.from_comb_stride + n - kStreams];
      }
    async_wait<0>();  // each thread reads what it copied itself
    named_barrier(kWorkers, kWorkThreads);
  }

  // The streams of this site, here and in global memory, and their square sums.
  __device__ __forceinline__ void expand() {
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(half);
      float squares = 0;
#pragma unroll 1
      for (int h = 0; h < 2; ++h) {
        uint4 x[kStreams];
#pragma unroll
        for (int t = 0; t < kStreams; ++t) x[t] = s_.streams[h][half][t][thread_];
        if (p_.y != nullptr) {
          expand_unit(x, s_.y[h][half][thread_], s_.from[row]);
#pragma unroll
          for (int t = 0; t < kStreams; ++t) {
            s_.streams[h][half][t][thread_] = x[t];
            if (exists(row))
              *reinterpret_cast<uint4*>(p_.streams + ((first_row_ + row) * p_.stream_stride + t * kWidth + column(h)) * 2) = x[t];
          }
        }
#pragma unroll
        for (int t = 0; t < kStreams; ++t) squares += sum_squares(x[t]);
      }
      squares = quad_sum(squares);
      if (c_ == 0) s_.products[warp_][row][kMix] = squares;
    }
  }

  __device__ __forceinline__ static void expand_unit(uint4 (&x)[kStreams], const uint4& y4, const float* from) {
    uint32_t in[kStreams][4];
    uint32_t out[kStreams][4];
    uint32_t y[4];
#pragma unroll
    for (int t = 0; t < kStreams; ++t) unpack(x[t], in[t]);
    unpack(y4, y);
#pragma unroll
    for (int t = 0; t < kStreams; ++t) {
      const float post = from[t];
      float comb[kStreams];
#pragma unroll
      for (int j = 0; j < kStreams; ++j) comb[j] = from[kStreams + j * kStreams + t];
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        float low = post * bf16_low(y[w]);
        float high = post * bf16_high(y[w]);
#pragma unroll
        for (int j = 0; j < kStreams; ++j) {
          low = fmaf(comb[j], bf16_low(in[j][w]), low);
          high = fmaf(comb[j], bf16_high(in[j][w]), high);
        }
        out[t][w] = pack_bf16x2(low, high);
      }
    }
#pragma unroll
    for (int t = 0; t < kStreams; ++t) x[t] = make_uint4(out[t][0], out[t][1], out[t][2], out[t][3]);
  }

  // Lane c's eight values stand for the places 2c, 2c + 1, 2c + 8, 2c + 9 of two products; rows and fn are permuted alike.
  __device__ __forceinline__ void multiply() {
    float sum[3][4] = {};
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      uint4 fn[kStreams][3];  // all on the way at once
#pragma unroll
      for (int t = 0; t < kStreams; ++t)
#pragma unroll
        for (int n = 0; n < 3; ++n)
          fn[t][n] = __ldg(reinterpret_cast<const uint4*>(p_.fn + ((int64_t{8 * n + g_} * kStreams + t) * kWidth + column(h)) * 2));
#pragma unroll
      for (int t = 0; t < kStreams; ++t) {
        const uint4 low = s_.streams[h][0][t][thread_];
        const uint4 high = s_.streams[h][1][t][thread_];
#pragma unroll
        for (int n = 0; n < 3; ++n) {
          mma_bf16(sum[n], low.x, high.x, low.y, high.y, fn[t][n].x, fn[t][n].y);
          mma_bf16(sum[n], low.z, high.z, low.w, high.w, fn[t][n].z, fn[t][n].w);
        }
      }
    }
#pragma unroll
    for (int n = 0; n < 3; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s_.products[warp_][row_of(i / 2)][8 * n + 2 * c_ + i % 2] = sum[n][i];
  }

  __device__ __forceinline__ float inverse_rms(int row) const {
    return rsqrtf(s_.total[row][kMix] * (1.0F / (kStreams * kWidth)) + p_.norm_eps);
  }

  // post and C of two rows of the cluster.
  __device__ __forceinline__ void rest_of_coefficients() {
    constexpr int kMine = kRows / kCluster;
    const int row = rank_ * kMine + lane_ / kStreams;
    if (lane_ < kMine * kStreams && exists(row)) {
      const int i = lane_ % kStreams;
      const float m = s_.total[row][kStreams + i] * inverse_rms(row);
      p_.to_post[(first_row_ + row) * p_.to_post_stride + i] = 2.0F * logistic(m * s_.scale[1] + s_.base[kStreams + i]);
    }
    const int mine = rank_ * kMine + lane_;
    if (lane_ < kMine && exists(mine)) {
      float logits[kStreams * kStreams];
      const float inverse = inverse_rms(mine);
#pragma unroll
      for (int i = 0; i < kStreams * kStreams; ++i)
        logits[i] = s_.total[mine][2 * kStreams + i] * inverse * s_.scale[2] + s_.base[2 * kStreams + i];
      sinkhorn(logits, p_.hc_eps, p_.sinkhorn_iterations, p_.to_comb + (first_row_ + mine) * p_.to_comb_stride);
    }
    __syncwarp();
  }

  // u, rounded.
  __device__ __forceinline__ void collapse() {
    if (thread_ < kRows * kStreams) {
      const int row = thread_ / kStreams;
      const int i = thread_ % kStreams;
      s_.pre[row][i] = logistic(s_.total[row][i] * inverse_rms(row) * s_.scale[0] + s_.base[i]) + p_.hc_eps;
    }
    named_barrier(kWorkers, kWorkThreads);
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(half);
      const float4 pre = *reinterpret_cast<const float4*>(s_.pre[row]);
      float squares = 0;
#pragma unroll 1
      for (int h = 0; h < 2; ++h) {
        uint32_t in[kStreams][4];
        uint32_t u[4];
#pragma unroll
        for (int t = 0; t < kStreams; ++t) unpack(s_.streams[h][half][t][thread_], in[t]);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          const float low =
              pre.x * bf16_low(in[0][w]) + pre.y * bf16_low(in[1][w]) + pre.z * bf16_low(in[2][w]) + pre.w * bf16_low(in[3][w]);
          const float high =
              pre.x * bf16_high(in[0][w]) + pre.y * bf16_high(in[1][w]) + pre.z * bf16_high(in[2][w]) + pre.w * bf16_high(in[3][w]);
          u[w] = pack_bf16x2(low, high);
        }
        s_.y[h][half][thread_] = make_uint4(u[0], u[1], u[2], u[3]);
        squares += sum_squares(make_uint4(u[0], u[1], u[2], u[3]));
      }
      squares = quad_sum(squares);
      if (c_ == 0) s_.per_warp[warp_][row] = squares;
    }
    named_barrier(kWorkers, kWorkThreads);
    if (thread_ < kRows * kCluster) {
      const int row = thread_ % kRows;
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWorkWarps; ++w) sum += s_.per_warp[w][row];
      store_remote(&s_.u_parts[rank_][row], static_cast<uint32_t>(thread_ / kRows), sum);
    }
  }

  // x = u / rms(u) * weight, in the place of u.
  __device__ __forceinline__ void normalise() {
#pragma unroll 1
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(half);
      float sum = 0;
#pragma unroll
      for (int q = 0; q < kCluster; ++q) sum += s_.u_parts[q][row];
      const float inverse = rsqrtf(sum * (1.0F / kWidth) + p_.norm_eps);
      float largest = 0;
#pragma unroll 1
      for (int h = 0; h < 2; ++h) {
        const auto* weights = reinterpret_cast<const float4*>(s_.norm_weight + warp_ * 64 + h * 32 + c_ * 8);
        const float4 a = weights[0];
        const float4 b = weights[1];
        const float weight[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        uint32_t u[4];
        uint32_t x[4];
        unpack(s_.y[h][half][thread_], u);
#pragma unroll
        for (int w = 0; w < 4; ++w) {
          x[w] = pack_bf16x2(bf16_low(u[w]) * inverse * weight[2 * w], bf16_high(u[w]) * inverse * weight[2 * w + 1]);
          largest = fmaxf(largest, fmaxf(fabsf(bf16_low(x[w])), fabsf(bf16_high(x[w]))));
        }
        const uint4 packed = make_uint4(x[0], x[1], x[2], x[3]);
        s_.y[h][half][thread_] = packed;
        if (exists(row)) *reinterpret_cast<uint4*>(p_.x + ((first_row_ + row) * p_.x_stride + column(h)) * 2) = packed;
      }
      largest = lanes_max<1, 2>(largest);
      if (c_ == 0) s_.per_warp[warp_][row] = largest;
    }
    if (p_.codes != nullptr) store_codes();
  }

  // A block of 128 columns is that of two neighbouring warps.
  __device__ __forceinline__ void store_codes() {
    named_barrier(kWorkers, kWorkThreads);
#pragma unroll 1
    for (int part = 0; part < 4; ++part) {
      const int h = part & 1;
      const int row = row_of(part >> 1);
      const float scale = e4m3_scale(fmaxf(s_.per_warp[warp_][row], s_.per_warp[warp_ ^ 1][row]));
      uint32_t x[4];
      unpack(s_.y[h][part >> 1][thread_], x);
      uint32_t codes[2] = {0, 0};
#pragma unroll
      for (int w = 0; w < 4; ++w)
        codes[w >> 1] |= pack_e4m3x2(divide(bf16_low(x[w]), scale), divide(bf16_high(x[w]), scale)) << (16 * (w & 1));
      if (!exists(row)) continue;
      *reinterpret_cast<uint2*>(p_.codes + (first_row_ + row) * kWidth + column(h)) = make_uint2(codes[0], codes[1]);
      if (h == 0 && warp_ % 2 == 0 && c_ == 0) p_.code_scales[(first_row_ + row) * (kWidth / 128) + column(0) / 128] = scale;
    }
  }

  // Rounded to nearest like the operator, without its many instructions: right where neither quotient nor remainder leaves the normal
  // range, and what does is far below the smallest e4m3.
  __device__ __forceinline__ static float divide(float a, float b) {
    const float inverse = reciprocal(b);
    const float q = a * inverse;
    const float rest = fmaf(-b, q, a);
    return rest == 0.0F ? q : fmaf(rest, inverse, q);  // keeps the sign of a zero
  }

  __device__ __forceinline__ static float quad_sum(float v) {
    v += __shfl_xor_sync(0xFFFFFFFFU, v, 1);
    return v + __shfl_xor_sync(0xFFFFFFFFU, v, 2);
  }
  __device__ __forceinline__ static void unpack(const uint4& v, uint32_t (&w)[4]) {
    w[0] = v.x;
    w[1] = v.y;
    w[2] = v.z;
    w[3] = v.w;
  }
  __device__ __forceinline__ static float sum_squares(const uint4& v) {
    uint32_t w[4];
    unpack(v, w);
    float sum = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) sum += bf16_low(w[i]) * bf16_low(w[i]) + bf16_high(w[i]) * bf16_high(w[i]);
    return sum;
  }

  const MixParams& p_;
  MixShared& s_;
  const int rank_;
  const int64_t first_row_;
  const int thread_, warp_, lane_, g_, c_;
};

__global__ void __launch_bounds__(kMixThreads, 2) mix_rows(const __grid_constant__ MixParams p) {
  extern __shared__ __align__(16) uint8_t raw[];
  auto& shared = *reinterpret_cast<MixShared*>(raw);
  allow_successor();
  Mixer mixer(p, shared);
  mixer.run();
}

}  // namespace baton::cuda::mhc
