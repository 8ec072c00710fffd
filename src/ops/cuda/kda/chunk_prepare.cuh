// First kernel of the chunked form: everything that does not need the state, one block a chunk of a head.
//
// The decays of 32 tokens may span 2^-231, so rows are scaled within blocks of 32 around the middle of the block (2^+-115 is in the range
// of float and BF16): up_i = 2^(G_i - ref), down_j = 2^(ref - G_j). The one product between the blocks takes 2^(ref_1 - G_j) instead of
// down_j: from one exponent, because 2^(ref_1 - ref_0) alone may be below the range where neighbours over the edge still matter.
#pragma once

#include "ops/cuda/device/grid.cuh"
#include "ops/cuda/device/matrix.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/kda/chunk_rows.cuh"

namespace baton::cuda::kda {

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
