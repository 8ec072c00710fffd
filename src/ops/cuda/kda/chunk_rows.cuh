// The rows of a chunk: staging, gates, convolutions and their scaled forms, in the places where chunk_prepare's tiles are read.
#pragma once

#include "ops/cuda/device/async_copy.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/kda/channel.cuh"
#include "ops/cuda/kda/chunk_tile.cuh"

namespace baton::cuda::kda {

inline constexpr int kPrepareThreads = 256;

// Rows arrive in the swizzle that the tiles are read in, and what is made of them takes their places.
struct PrepareShared {
  alignas(128) bf16x halo[3][3][kDim];  // of q, k, v: the three rows before the chunk
  alignas(128) bf16x q[kChunk][kDim];   // q^, then q~ up
  bf16x k[kChunk][kDim];                // k^, then k~ up
  bf16x v[kChunk][kDim];                // v^, then v
  bf16x a[kChunk][kDim];                // a, then k~ down
  bf16x across[kChunk / 2][kDim];       // k~ 2^(ref_1 - G): rows of the first block as the second sees them
  float total[4][kDim];                 // log2 decay of 16 tokens
  float scale[2][kDim];                 // 2^ref of a block of 32, from the chunk's start
  float part[8][2][16];                 // of a warp: sums of k~ k~, q~ q~ of its 16 tokens
  float beta[kChunk];
  float r[kChunk];
  alignas(16) float t[kChunk][kChunk + 4];  // A, then (I + A)^-1
  alignas(16) float x[32][36];
};

// Requests the raw rows, sixteen threads a row. Rows past the chunk repeat its last one: their update is zero, so they need only be finite.
__device__ __forceinline__ void request_rows(const DecodeParams& p, const ChunkWork& w, PrepareShared& sh) {
  const int thread = static_cast<int>(threadIdx.x);
  const int chunk = thread % 16;
  const int64_t width = int64_t{p.heads} * kDim;
  const bf16x* inputs = p.inputs + w.head * kDim + chunk * 8;
#pragma unroll
  for (int i = 0; i < kChunk; i += kPrepareThreads / 16) {
    const int t = thread / 16 + i;
    const bf16x* row = inputs + (w.row + min(t, w.count - 1)) * p.input_stride;
    const int to = swizzled<kDim * 2>(t, chunk * 8);
    async_copy16(reinterpret_cast<std::byte*>(sh.q) + to, row);
    async_copy16(reinterpret_cast<std::byte*>(sh.k) + to, row + width);
    async_copy16(reinterpret_cast<std::byte*>(sh.v) + to, row + 2 * width);
    async_copy16(reinterpret_cast<std::byte*>(sh.a) + to, row + 3 * width);
  }
  if (thread < 9 * 16) {
    const int part = thread / 48;
    const int t = thread / 16 % 3;
    const int before = w.before + t - 3;  // row of the launch's sequence, or of the window
    const bf16x* from = before >= 0 ? inputs + (w.row + t - 3) * p.input_stride + part * width
                                    : reinterpret_cast<const bf16x*>(p.slots + w.slot * p.slot_stride + p.window_offset) +
                                          (before + 3) * 3 * width + part * width + w.head * kDim + chunk * 8;
    async_copy16(&sh.halo[part][t][chunk * 8], from);
  }
  async_commit();
  if (thread < kChunk)
    sh.beta[thread] = thread < w.count ? sigmoid(__bfloat162float(p.inputs[(w.row + thread) * p.input_stride + 4 * width + w.head])) : 0.0F;
}

// x / 2 (1 + tanh(x / 2)): off by 2^-11 of x / 2, less than the operands' rounding.
__device__ __forceinline__ float silu_fast(float x) {
  const float h = 0.5F * x;
  return fmaf(h, tanh_fast(h), h);
}

// Two channels of the rows of a group of 16 tokens: places in the swizzle are one exclusive or away from each other.
struct GroupColumn {
  uint32_t place;  // of token `first` in the rows, bytes; the group begins at a multiple of 16

  static __device__ __forceinline__ GroupColumn of(int first, int channel) {
    return {static_cast<uint32_t>(first * kDim * 2 + channel * 2)};
  }
  __device__ __forceinline__ uint32_t at(int t) const {
    return (place ^ static_cast<uint32_t>(t % 8 * 16)) + static_cast<uint32_t>(t * kDim * 2);
  }
  __device__ __forceinline__ uint32_t get(const void* rows, int t) const {
    return *reinterpret_cast<const uint32_t*>(static_cast<const std::byte*>(rows) + at(t));
  }
  __device__ __forceinline__ void put(void* rows, int t, float x, float y) const {
    *reinterpret_cast<uint32_t*>(static_cast<std::byte*>(rows) + at(t)) = pack_bf16x2(x, y);
  }
};

// The convolution of one part along a group. The three rows before the group belong to threads that overwrite them: they are read ahead.
struct GroupLine {
  uint32_t x0, x1, x2;

  __device__ __forceinline__ void begin(const void* rows, const bf16x (&halo)[3][kDim], const GroupColumn& column, int first, int channel) {
    if (first == 0) {
      x0 = *reinterpret_cast<const uint32_t*>(&halo[0][channel]);
      x1 = *reinterpret_cast<const uint32_t*>(&halo[1][channel]);
      x2 = *reinterpret_cast<const uint32_t*>(&halo[2][channel]);
    } else {
      const GroupColumn before{column.place - 16 * kDim * 2};
      x0 = before.get(rows, 13), x1 = before.get(rows, 14), x2 = before.get(rows, 15);
    }
  }
  static __device__ __forceinline__ float tap(float4 w, float x0, float x1, float x2, float x3) {
    return silu_fast(fmaf(w.w, x3, fmaf(w.z, x2, fmaf(w.y, x1, w.x * x0))));
  }
  __device__ __forceinline__ float2 next(uint32_t x3, float4 w0, float4 w1) {
    const float2 y = make_float2(tap(w0, bf16_low(x0), bf16_low(x1), bf16_low(x2), bf16_low(x3)),
                                 tap(w1, bf16_high(x0), bf16_high(x1), bf16_high(x2), bf16_high(x3)));
    x0 = x1, x1 = x2, x2 = x3;
    return y;
  }
};

// Convolutions, gates and the scaled rows. Threads 64 b ... take tokens 16 b ... 16 b + 15, two channels each.
__device__ __forceinline__ void prepare_rows(const DecodeParams& p, const ChunkWork& w, PrepareShared& sh, ChunkRecord& record) {
  const int thread = static_cast<int>(threadIdx.x);
  const int channel = thread % 64 * 2;
  const int group = thread / 64;
  const int first = 16 * group;
  const int lane = thread % 32;
  const int warp = thread / 32;
  const int64_t width = int64_t{p.heads} * kDim;
  const int64_t at = w.head * kDim + channel;
  const auto* taps = reinterpret_cast<const float4*>(p.conv);
  const GroupColumn column = GroupColumn::of(first, channel);
  const DecayGate gate{decay_rate(p, w.head), __ldg(reinterpret_cast<const float2*>(p.dt_bias + at)), p.lower_bound_log2};
  float4 w0 = __ldg(taps + width + at);
  float4 w1 = __ldg(taps + width + at + 1);
  async_wait<0>();
  __syncthreads();
  float2 e[16];  // log2 of up
  {
    float2 sum = make_float2(0, 0);
#pragma unroll
    for (int t = 0; t < 16; ++t) {
      const uint32_t a = column.get(sh.a, t);
      const bool real = first + t < w.count;
      sum.x += real ? gate.one(bf16_low(a), gate.bias.x) : 0.0F;
      sum.y += real ? gate.one(bf16_high(a), gate.bias.y) : 0.0F;
      e[t] = sum;
    }
    *reinterpret_cast<float2*>(&sh.total[group][channel]) = sum;
  }
  GroupLine line_q;
  GroupLine line_k;
  GroupLine line_v;
  line_q.begin(sh.q, sh.halo[0], column, first, channel);
  line_k.begin(sh.k, sh.halo[1], column, first, channel);
  line_v.begin(sh.v, sh.halo[2], column, first, channel);
  __syncthreads();    // totals are there; a and what others overwrite have been read
  float2 up_scale;    // 2^ref of this block, from the chunk's start
  float2 down_scale;  // 2^(G_63 - ref)
  float2 across;      // ref_1 - ref_0
  {
    float2 total[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) total[i] = *reinterpret_cast<const float2*>(&sh.total[i][channel]);
    const float2 mine = *reinterpret_cast<const float2*>(&sh.total[group][channel]);
    if (group % 2 == 0) {
#pragma unroll
      for (int t = 0; t < 16; ++t) e[t].x -= mine.x, e[t].y -= mine.y;
    }
    const float2 ref0 = total[0];
    const float2 ref1 = make_float2(total[0].x + total[1].x + total[2].x, total[0].y + total[1].y + total[2].y);
    const float2 end = make_float2(ref1.x + total[3].x, ref1.y + total[3].y);
    const float2 ref = group < 2 ? ref0 : ref1;
    up_scale = make_float2(exp2_fast(ref.x), exp2_fast(ref.y));
    down_scale = make_float2(exp2_fast(end.x - ref.x), exp2_fast(end.y - ref.y));
    across = make_float2(ref1.x - ref0.x, ref1.y - ref0.y);
    if (group % 2 == 0) *reinterpret_cast<float2*>(&sh.scale[group / 2][channel]) = up_scale;
    if (group == 0) *reinterpret_cast<float2*>(&record.decay[channel]) = make_float2(exp2_fast(end.x), exp2_fast(end.y));
  }
  float square[16];
#pragma unroll
  for (int t = 0; t < 16; ++t) {
    const float2 k = line_k.next(column.get(sh.k, t), w0, w1);
    square[t] = k.x * k.x + k.y * k.y;
    const float2 up = make_float2(exp2_fast(e[t].x), exp2_fast(e[t].y));
    const float2 down = make_float2(k.x * reciprocal_fast(up.x), k.y * reciprocal_fast(up.y));
    column.put(sh.k, t, k.x * up.x, k.y * up.y);
    column.put(sh.a, t, down.x, down.y);
    if (group < 2) column.put(sh.across, t, k.x * exp2_fast(across.x - e[t].x), k.y * exp2_fast(across.y - e[t].y));
    column.put(record.ends, t, down.x * down_scale.x, down.y * down_scale.y);
  }
  w0 = __ldg(taps + at);
  w1 = __ldg(taps + at + 1);
  float total = warp_sums(square);
  if (sum_owner<16>(lane)) sh.part[warp][0][sum_index<16>(lane)] = total;
#pragma unroll
  for (int t = 0; t < 16; ++t) {
    const float2 q = line_q.next(column.get(sh.q, t), w0, w1);
    square[t] = q.x * q.x + q.y * q.y;
    const float2 up = make_float2(q.x * exp2_fast(e[t].x), q.y * exp2_fast(e[t].y));
    column.put(sh.q, t, up.x, up.y);
    column.put(record.q, t, up.x * up_scale.x, up.y * up_scale.y);
  }
  w0 = __ldg(taps + 2 * width + at);
  w1 = __ldg(taps + 2 * width + at + 1);
  total = warp_sums(square);
  if (sum_owner<16>(lane)) sh.part[warp][1][sum_index<16>(lane)] = total;
#pragma unroll
  for (int t = 0; t < 16; ++t) {
    const float2 v = line_v.next(column.get(sh.v, t), w0, w1);
    column.put(sh.v, t, v.x, v.y);
  }
}

}  // namespace baton::cuda::kda
