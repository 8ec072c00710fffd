// The shared memory of the BF16 decode kernel and the tile of state that a warp holds (see decode_bf16.cuh).
#pragma once

#include "ops/cuda/device/async_copy.cuh"
#include "ops/cuda/device/number.cuh"
#include "ops/cuda/kda/stage.cuh"

namespace baton::cuda::kda {

inline constexpr int kBf16Threads = 128;

// Eight floats a row in halves of 16 bytes, which trade places so that rows read by consecutive lanes, and rows 16 apart, hit different
// banks.
struct TokenTable {
  float cell[kDim][8];
  __device__ __forceinline__ float* half(int row, int which) {
    return &cell[0][0] + 4 * ((2 * row + which) ^ (row / 16 % 4 * 2) ^ (row / 4 % 2));
  }
  __device__ __forceinline__ float* pair(int row, int c) { return half(row, c / 2) + c % 2 * 2; }  // tokens 2 c, 2 c + 1
  __device__ __forceinline__ void read(float (&v)[8], int row) {
    *reinterpret_cast<float4*>(&v[0]) = *reinterpret_cast<const float4*>(half(row, 0));
    *reinterpret_cast<float4*>(&v[4]) = *reinterpret_cast<const float4*>(half(row, 1));
  }
};

struct Bf16Shared {
  static constexpr int kPitch = kDim + 16;  // operands: eight rows x 32 bytes hit every bank once

  union {
    StagedRows staged;
    TokenTable read_q[2];  // of a last segment, whose staged rows are dead by then
  };
  StagedHead side;
  HeadWork work;  // read from here where it is needed: registers are short
  float rate;
  union alignas(16) {
    struct {
      bf16x rows_hi[16][kPitch];  // k~ 2^G of eight tokens, q~ 2^G of eight tokens
      bf16x rows_lo[16][kPitch];
    };
    struct {  // when S^T rows are known
      float o[8][kDim];
      bf16x w[kDim][24];  // [place][8 tokens high part | 8 tokens low part | padding]
    };
  };
  union alignas(16) {
    struct {
      bf16x keys_hi[8][kPitch];  // k~ 2^-G
      bf16x keys_lo[8][kPitch];
    };
    TokenTable read_k[2];  // when kk and qk are known: S^T (k~ 2^G), each over half of the keys
  };
  struct Ends {  // four tokens a key; padding keeps the token groups in different banks
    bf16x of[kDim][4];
    bf16x padding[8];
  };
  Ends ends_hi[2];  // k~ 2^(G_last - G)
  Ends ends_lo[2];
  uint32_t end_decay[kDim];         // 2^G_last: high part, low part << 16
  float2 group_decay[2][kDim / 2];  // sum of log2 decays over four tokens
  TokenTable v;                     // [place]
  float part_matrix[4][16][8];
  float matrix[16][8];    // kk, then qk
  float part_norm[4][8];  // of a warp: sums of k~ k~ and q~ q~ of its four tokens
  float r[16];            // factors of the norms of k~, then of q~
  float r_beta[8];
};

static_assert(4 * (sizeof(Bf16Shared) + 1024) <= 228 * 1024, "four blocks an SM");

// Of value v.
__device__ __forceinline__ int place(int v) { return (v & 64) + (v % 8) * 8 + (v % 64) / 8; }

struct StateTile {
  uint32_t f[4][4][4];  // [16 keys][values j = 2 i, 2 i + 1][keys 0, 1 of 2 i; of 2 i + 1; keys 2, 3 of 2 i; of 2 i + 1]

  // From rows as loaded to fragments, and back.
  __device__ __forceinline__ void set(const uint4 (&rows)[4][4]) {
#pragma unroll
    for (int s = 0; s < 4; ++s) {
      const uint32_t r[4][4] = {{rows[s][0].x, rows[s][0].y, rows[s][0].z, rows[s][0].w},
                                {rows[s][1].x, rows[s][1].y, rows[s][1].z, rows[s][1].w},
                                {rows[s][2].x, rows[s][2].y, rows[s][2].z, rows[s][2].w},
                                {rows[s][3].x, rows[s][3].y, rows[s][3].z, rows[s][3].w}};
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int x = 0; x < 4; ++x) f[s][i][x] = __byte_perm(r[x / 2 * 2][i], r[x / 2 * 2 + 1][i], x % 2 == 0 ? 0x5410 : 0x7632);
    }
  }
  __device__ __forceinline__ void store(std::byte* state, uint64_t policy) const {
#pragma unroll
    for (int s = 0; s < 4; ++s)
#pragma unroll
      for (int row = 0; row < 4; ++row) {
        const auto word = [&](int i) {
          return __byte_perm(f[s][i][row / 2 * 2], f[s][i][row / 2 * 2 + 1], row % 2 == 0 ? 0x5410 : 0x7632);
        };
        store_streaming(state + (16 * s + row) * kDim * 2, make_uint4(word(0), word(1), word(2), word(3)), policy);
      }
  }
};

// Both parts of two values at once: x = high + low up to 2^-17.
__device__ __forceinline__ void split(float a, float b, bf16x* high, bf16x* low) {
  const uint32_t h = pack_bf16x2(a, b);
  *reinterpret_cast<uint32_t*>(high) = h;
  *reinterpret_cast<uint32_t*>(low) = pack_bf16x2(a - bf16_low(h), b - bf16_high(h));
}

}  // namespace baton::cuda::kda
