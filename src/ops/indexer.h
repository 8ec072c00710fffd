// The indexer of a sparse layer: pooled keys, scores, and the choice of pools.
//
//   key_t   = LayerNorm(wk x_t; weight, bias, eps 1e-6)
//   K_p[c]  = sum_s softmax_s(gamma_{P p + s}[c] + ape[s, c]) key_{P p + s}[c]          pools of P consecutive tokens, final once closed
//   I_{t,p} = sum_h heads^-1/2 w_{t,h} relu(dim^-1/2 q_{t,h} . K_p)                  in float
// Row t chooses among the floor((t + 1) / P) closed pools the topk / P best (all if fewer; ties to the lower pool), and always attends to
// the (t + 1) mod P newest tokens.
#pragma once

#include "ops/batch.h"
#include "tensor/view.h"

namespace baton::ops {

struct IndexerLayout {
  int64_t dim = 0;
  int32_t pool = 0;           // tokens per pool, divides 64
  int64_t page_offset = 0;    // in a page: [64 / pool, dim] of dtype, then (FP8 only) 64 / pool float scales
  int64_t ring_offset = 0;    // in a slot: [ring_tokens, 2, dim] of ring_dtype: key and gamma of position t at entry t mod ring_tokens
  int32_t ring_tokens = 0;    // >= pool + largest number of rows that may be rejected, a multiple of pool
  DType dtype = DType::kF32;  // pooled rows: kF32, kBF16, or kF8E4M3 (orthonormal Hadamard first; power-of-two scale per row)
  DType ring_dtype = DType::kF32;
};

// Writes keys and gammas of all rows into the ring, and the pooled row of every pool that a row closes into its page.
struct IndexerKeysParams {
  BatchView batch{};
  ConstMatrixView key{};               // [m, dim] wk x before the norm
  ConstMatrixView gamma{};             // [m, dim]
  const float* norm_weight = nullptr;  // [dim]
  const float* norm_bias = nullptr;    // [dim]
  float norm_eps = 0;
  const float* ape = nullptr;  // [pool, dim]
  PagePoolView pages{};
  SlotPoolView slots{};
  IndexerLayout layout{};
};

// Which positions each row attends to: the tokens of its pools, and tail_begin ... position.
struct Selection {
  int32_t* pools = nullptr;       // [m, pool_capacity] ascending
  int32_t* counts = nullptr;      // [m]
  int32_t* tail_begin = nullptr;  // [m]
  int32_t pool_capacity = 0;      // topk / pool
};

struct IndexerSelectParams {
  BatchView batch{};
  ConstMatrixView q{};        // [m, heads * dim], kF32 or kBF16
  ConstMatrixView weights{};  // [m, heads] kF32: weights_proj x before the factor heads^-1/2, which the op applies with dim^-1/2
  int64_t heads = 0;
  PagePoolView pages{};
  IndexerLayout layout{};
  Selection selection{};
};

}  // namespace baton::ops
