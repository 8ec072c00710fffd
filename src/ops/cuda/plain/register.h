// The plain bodies of the CUDA backend, a family a file: right for every type and size that the seam allows. Nothing here is tuned; see
// README.md.
#pragma once

#include "ops/op_table.h"

namespace baton::cuda::plain {

void register_rows(ops::OpTable& table);       // embed, rms_norm
void register_gemm(ops::OpTable& table);       // gemm, gemm_batched, gated_mlp
void register_moe(ops::OpTable& table);        // moe_route, moe_gate_up, moe_down, moe_combine
void register_mhc(ops::OpTable& table);        // mhc_mix, mhc_expand, mhc_final
void register_kda(ops::OpTable& table);        // kda, kda_fold
void register_attention(ops::OpTable& table);  // latent_write, mla_attend, mla_attend_expanded
void register_indexer(ops::OpTable& table);    // indexer_keys, indexer_select
void register_drafter(ops::OpTable& table);    // window_write, window_attend, block_conv, draft_path
void register_sample(ops::OpTable& table);     // sample

inline void register_all(ops::OpTable& table) {
  register_rows(table);
  register_gemm(table);
  register_moe(table);
  register_mhc(table);
  register_kda(table);
  register_attention(table);
  register_indexer(table);
  register_drafter(table);
  register_sample(table);
}

}  // namespace baton::cuda::plain
