// Sparse multi-head latent attention over paged latent rows.
#pragma once

#include "ops/batch.h"
#include "ops/indexer.h"
#include "ops/weight.h"
#include "tensor/view.h"

namespace baton::ops {

struct LatentLayout {
  int64_t dim = 0;          // kv_lora_rank
  int64_t page_offset = 0;  // in a page: 64 rows of row_bytes
  int64_t row_bytes = 0;    // kF32: 4 dim; kBF16: 2 dim; kF8E4M3: dim values, then one float scale per 128 of them
  DType dtype = DType::kF32;
};

// c = RMSNorm(x; weight, eps) into the page rows of each row's position.
// FP8: scale = amax / 448 rounded up to a power of two (floor 1e-4 on amax).
struct LatentWriteParams {
  BatchView batch{};
  ConstMatrixView x{};            // [m, dim] output of kv_a
  const float* weight = nullptr;  // [dim]
  float eps = 0;
  PagePoolView pages{};
  LatentLayout layout{};
};

// Absorbed form: scores scale * q_h . c_s over the selection, softmax in float, out_h = sum_s p_s c_s.
// Tokens are visited in ascending order.
struct MlaAttendParams {
  BatchView batch{};
  ConstMatrixView q{};  // [m, heads * dim] absorbed queries
  int64_t heads = 0;
  float scale = 0;  // qk_head_dim^-1/2
  PagePoolView pages{};
  LatentLayout layout{};
  Selection selection{};
  int32_t pool = 0;
  MatrixView out{};  // [m, heads * dim]
};

// Expanded form of the same attention, the definition that the absorbed form is tested against:
// keys and values are w_k_h c_s and w_v_h c_s.
struct MlaAttendExpandedParams {
  BatchView batch{};
  ConstMatrixView q{};                // [m, heads * qk_dim]
  const WeightView* key = nullptr;    // [heads] of [qk_dim, dim]
  const WeightView* value = nullptr;  // [heads] of [v_dim, dim]
  int64_t heads = 0;
  float scale = 0;
  PagePoolView pages{};
  LatentLayout layout{};
  Selection selection{};
  int32_t pool = 0;
  MatrixView out{};  // [m, heads * v_dim]
};

}  // namespace baton::ops
