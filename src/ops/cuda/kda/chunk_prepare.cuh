// First kernel of the chunked form: everything that does not need the state, one block a chunk of a head.
//
// The decays of 32 tokens may span 2^-231, so rows are scaled within blocks of 32 around the middle of the block (2^+-115 is in the range
// of float and BF16): up_i = 2^(G_i - ref), down_j = 2^(ref - G_j). The one product between the blocks takes 2^(ref_1 - G_j) instead of
// down_j: from one exponent, because 2^(ref_1 - ref_0) alone may be below the range where neighbours over the edge still matter.
#pragma once

#include "ops/cuda/device/async_copy.cuh"
#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/device/matrix.cuh"
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

__device__ __forceinline__ float silu_fast(float x) {  // x / 2 (1 + tanh(x / 2)): off by 2^-11 of x / 2, less than the operands' rounding
  const float h = 0.5F * x;
  float t;
  asm("tanh.approx.f32 %0, %1;" : "=f"(t) : "f"(h));
  return fmaf(h, t, h);
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

// A and Q: warps 0 ... 3 rows of A, warps 4 ... 7 rows of Q, 16 rows each.
__device__ __forceinline__ void token_products(PrepareShared& sh, ChunkRecord& record) {
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int g = thread % 32 / 4;
  const int c = thread % 4;
  const bool keys = warp < 4;
  const int m = warp % 4;
  uint32_t a[8][4];
#pragma unroll
  for (int s = 0; s < 8; ++s) load_matrix_x4(tile_a<kDim * 2>(keys ? sh.k : sh.q, 16 * m, 16 * s), a[s]);
  const int row = 16 * m + g;  // and row + 8
  float factor[2];             // beta_i r_i
#pragma unroll
  for (int half = 0; half < 2; ++half) factor[half] = sh.beta[row + 8 * half] * sh.r[row + 8 * half];
  const auto to = reinterpret_cast<uintptr_t>(record.qk[row]) + static_cast<uintptr_t>(16 * g + 4 * c);
  for (int n = 0; n <= m; ++n) {
    const void* columns = n / 2 == m / 2 ? static_cast<const void*>(sh.a) : sh.across;
    float d[2][4] = {};
#pragma unroll
    for (int s = 0; s < 8; ++s) {
      uint32_t b[4];
      load_matrix_x4(tile_b<kDim * 2>(columns, 16 * n, 16 * s), b);
      mma_bf16(d[0], a[s][0], a[s][1], a[s][2], a[s][3], b[0], b[1]);
      mma_bf16(d[1], a[s][0], a[s][1], a[s][2], a[s][3], b[2], b[3]);
    }
    if (n == m) {  // A has nothing on the diagonal, Q has
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int x = 0; x < 4; ++x) {
          const int above = 8 * h + 2 * c + x % 2 - (g + x / 2 * 8);
          if (above > (keys ? -1 : 0)) d[h][x] = 0;
        }
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int j = 16 * n + 8 * h + 2 * c;
      if (keys) {
        const float2 r = *reinterpret_cast<const float2*>(&sh.r[j]);
        *reinterpret_cast<float2*>(&sh.t[row][j]) = make_float2(factor[0] * r.x * d[h][0], factor[0] * r.y * d[h][1]);
        *reinterpret_cast<float2*>(&sh.t[row + 8][j]) = make_float2(factor[1] * r.x * d[h][2], factor[1] * r.y * d[h][3]);
      } else {
        auto* place = reinterpret_cast<uint32_t*>(to ^ static_cast<uintptr_t>((2 * n + h) * 16));
        place[0] = pack_bf16x2(d[h][0], d[h][1]);
        place[8 * kChunk / 2] = pack_bf16x2(d[h][2], d[h][3]);
      }
    }
  }
}

// (I + A)^-1 in float, in place: blocks of 16 by substitution, then pairs of blocks by T21 = -T22 A21 T11.
__device__ __forceinline__ void invert(PrepareShared& sh) {
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < kChunk) {
    const int base = thread / 16 * 16;
    const int column = thread % 16;
    float x[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      float s = i == column ? 1.0F : 0.0F;
#pragma unroll
      for (int l = 0; l < i; ++l) s -= sh.t[base + i][base + l] * x[l];
      x[i] = s;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 16; ++i) sh.t[base + i][base + column] = x[i];
  }
  __syncthreads();
  {
    const int base = thread / 128 * 32;
    const int i = thread % 128 / 8;
    const int j = thread % 8 * 2;
    float2 s = make_float2(0, 0);
#pragma unroll
    for (int l = 0; l < 16; ++l) {
      const float a = sh.t[base + 16 + i][base + l];
      const float2 b = *reinterpret_cast<const float2*>(&sh.t[base + l][base + j]);
      s.x += a * b.x, s.y += a * b.y;
    }
    *reinterpret_cast<float2*>(&sh.x[thread / 128 * 16 + i][j]) = s;
    __syncthreads();
    s = make_float2(0, 0);
#pragma unroll
    for (int l = 0; l < 16; ++l) {
      const float a = sh.t[base + 16 + i][base + 16 + l];
      const float2 b = *reinterpret_cast<const float2*>(&sh.x[thread / 128 * 16 + l][j]);
      s.x -= a * b.x, s.y -= a * b.y;
    }
    *reinterpret_cast<float2*>(&sh.t[base + 16 + i][base + j]) = s;
  }
  __syncthreads();
  {
    const int i = thread / 8;
    const int j = thread % 8 * 4;
    float s[4] = {};
#pragma unroll
    for (int l = 0; l < 32; ++l) {
      const float a = sh.t[32 + i][l];
      const float4 b = l < j / 16 * 16 ? make_float4(0, 0, 0, 0) : *reinterpret_cast<const float4*>(&sh.t[l][j]);
      s[0] += a * b.x, s[1] += a * b.y, s[2] += a * b.z, s[3] += a * b.w;
    }
    *reinterpret_cast<float4*>(&sh.x[i][j]) = make_float4(s[0], s[1], s[2], s[3]);
    __syncthreads();
    s[0] = s[1] = s[2] = s[3] = 0;
    const int last = i / 16 * 16 + 16;
    for (int l = 0; l < last; ++l) {
      const float a = sh.t[32 + i][32 + l];
      const float4 b = *reinterpret_cast<const float4*>(&sh.x[l][j]);
      s[0] -= a * b.x, s[1] -= a * b.y, s[2] -= a * b.z, s[3] -= a * b.w;
    }
    *reinterpret_cast<float4*>(&sh.t[32 + i][j]) = make_float4(s[0], s[1], s[2], s[3]);
  }
  __syncthreads();
}

// W and U: warps 0 ... 3 rows of W, warps 4 ... 7 rows of U, 16 rows each.
__device__ __forceinline__ void apply_inverse(PrepareShared& sh, ChunkRecord& record) {
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / 32;
  const int g = thread % 32 / 4;
  const int c = thread % 4;
  const bool keys = warp < 4;
  const int m = warp % 4;
  uint32_t a[4][4] = {};
#pragma unroll
  for (int s = 0; s < 4; ++s) {
    if (s > m) break;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int j = 16 * s + 8 * h + 2 * c;
      float2 f = *reinterpret_cast<const float2*>(&sh.beta[j]);
      if (keys) f.x *= sh.r[j], f.y *= sh.r[j + 1];
      const float2 upper = *reinterpret_cast<const float2*>(&sh.t[16 * m + g][j]);
      const float2 lower = *reinterpret_cast<const float2*>(&sh.t[16 * m + g + 8][j]);
      a[s][2 * h] = pack_bf16x2(upper.x * f.x, upper.y * f.y);
      a[s][2 * h + 1] = pack_bf16x2(lower.x * f.x, lower.y * f.y);
    }
  }
  const auto products = [&](float(&first)[2][4], float(&second)[2][4], const void* rows, int n) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      if (s > m) break;
      uint32_t b[4];
      load_matrix_transposed_x4(tile_k<kDim * 2>(rows, 16 * s, 16 * n), b);
      float(&d)[2][4] = s < 2 ? first : second;
      mma_bf16(d[0], a[s][0], a[s][1], a[s][2], a[s][3], b[0], b[1]);
      mma_bf16(d[1], a[s][0], a[s][1], a[s][2], a[s][3], b[2], b[3]);
    }
  };
  const int row = 16 * m + g;  // and row + 8; column pair 16 n + 8 h + 2 c lies one exclusive or away
  if (keys) {
    const auto to = reinterpret_cast<uintptr_t>(record.w[row]) + static_cast<uintptr_t>(16 * g + 4 * c);
#pragma unroll 2
    for (int n = 0; n < 8; ++n) {
      float first[2][4] = {};
      float second[2][4] = {};
      products(first, second, sh.k, n);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float2 f0 = *reinterpret_cast<const float2*>(&sh.scale[0][16 * n + 8 * h + 2 * c]);
        const float2 f1 = *reinterpret_cast<const float2*>(&sh.scale[1][16 * n + 8 * h + 2 * c]);
        auto* place = reinterpret_cast<uint32_t*>(to ^ static_cast<uintptr_t>((2 * n + h) * 16));
        place[0] = pack_bf16x2(first[h][0] * f0.x + second[h][0] * f1.x, first[h][1] * f0.y + second[h][1] * f1.y);
        place[8 * kDim / 2] = pack_bf16x2(first[h][2] * f0.x + second[h][2] * f1.x, first[h][3] * f0.y + second[h][3] * f1.y);
      }
    }
  } else {
    const auto to = reinterpret_cast<uintptr_t>(record.u[0][row]) + static_cast<uintptr_t>(16 * g + 4 * c);
#pragma unroll 2
    for (int n = 0; n < 8; ++n) {
      float d[2][4] = {};
      products(d, d, sh.v, n);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        auto* place = reinterpret_cast<uint32_t*>((to ^ static_cast<uintptr_t>((2 * n + h) % 8 * 16)) +
                                                  static_cast<uintptr_t>(n / 4) * sizeof(record.u[0]));
        place[0] = pack_bf16x2(d[h][0], d[h][1]);
        place[8 * kDim / 4] = pack_bf16x2(d[h][2], d[h][3]);
      }
    }
  }
}

__global__ void __launch_bounds__(kPrepareThreads, 2) chunk_prepare(const __grid_constant__ ChunkParams params) {
  extern __shared__ __align__(128) std::byte shared_memory[];
  auto& sh = *reinterpret_cast<PrepareShared*>(shared_memory);
  const DecodeParams& p = params.base;
  // Blocks are numbered head fastest, then sequence, then chunk.
  const int unit = static_cast<int>(blockIdx.x) / p.heads;
  const int sequence = unit % p.sequence_count;
  const int chunk = params.first_chunk + unit / p.sequence_count;
  const ops::SequenceRows rows = p.sequences[sequence];
  allow_successor();
  wait_for_predecessor();
  if (chunk >= sequence_chunks(rows)) return;
  ChunkWork w = chunk_work(rows, sequence, chunk);
  w.head = static_cast<int>(blockIdx.x) % p.heads;
  ChunkRecord& record = params.records[blockIdx.x];
  request_rows(p, w, sh);
  prepare_rows(p, w, sh, record);
  __syncthreads();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread < 2 * kChunk) {
    const int kind = thread / kChunk;
    const int t = thread % kChunk;
    const float square = sh.part[t / 16 * 2][kind][t % 16] + sh.part[t / 16 * 2 + 1][kind][t % 16];
    const float r = rsqrtf(square + 1e-6F) * (kind == 0 ? 1.0F : 0.08838834764831845F);
    if (kind == 0) sh.r[t] = r;
    (kind == 0 ? record.r : record.s)[t] = r;
  }
  __syncthreads();
  token_products(sh, record);
  __syncthreads();
  invert(sh);
  apply_inverse(sh, record);
}

}  // namespace baton::cuda::kda
