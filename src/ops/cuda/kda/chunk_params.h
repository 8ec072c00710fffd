// What the two kernels of the chunked form are launched with, and the records that the first hands to the second.
//
// With tokens i of a chunk of 64, G_i the sum of log2 decays from its start, k~ and q~ before their norms, r_i and s_i the factors of these
// (s_i with dim^-1/2), A_ij = beta_i r_i r_j (k~_i 2^G_i) . (k~_j 2^-G_j) for j < i, T = (I + A)^-1:
//   W = T diag(beta r) (k~ 2^G),  U = T diag(beta) v,  w = diag(r) (U - W S),
//   o_i = s_i ((q~_i 2^G_i) S + sum_{j<=i} Q_ij w_j),  Q_ij = (q~_i 2^G_i) . (k~_j 2^-G_j),
//   S <- diag(2^G_63) S + sum_j (k~_j 2^(G_63 - G_j)) w_j^T
// chunk_prepare makes W, U, Q and the scaled rows, for all chunks at once; chunk_scan walks the chunks of a head with S in registers.
#pragma once

#include "ops/cuda/kda/decode_params.h"

namespace baton::cuda::kda {

inline constexpr int kChunk = 64;
inline constexpr int kSlabChunks = 128;  // of a sequence, between two launches of each kernel

// Rows are swizzled: chunk of 16 bytes c of row t lies at c ^ (t % 8), inside each 128 bytes.
struct alignas(256) ChunkRecord {
  uint16_t w[kChunk][kDim];
  uint16_t q[kChunk][kDim];     // q~ 2^G
  uint16_t ends[kChunk][kDim];  // k~ 2^(G_63 - G)
  uint16_t qk[kChunk][kChunk];  // Q; tiles of 16 x 16 above the diagonal are not written
  uint16_t u[2][kChunk][kDim / 2];
  float decay[kDim];  // 2^G_63
  float r[kChunk];
  float s[kChunk];
};

struct ChunkParams {
  DecodeParams base;               // sequences with more than kMaxTokens rows and verify = 0 are this form's
  ChunkRecord* records = nullptr;  // [slab_chunks][sequence_count][heads]
  float* carry = nullptr;          // [sequence_count][heads][kDim][kDim]: S between slabs
  int32_t first_chunk = 0;         // of every sequence
  int32_t slab_chunks = 0;         // most chunks of a sequence in this launch
};

}  // namespace baton::cuda::kda
