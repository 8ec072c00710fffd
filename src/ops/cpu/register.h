// Every family of ops adds its bodies to the table of the CPU backend.
#pragma once

#include "ops/op_table.h"

namespace baton::cpu {

void register_gemm(ops::OpTable& table);        // gemm, gemm_batched, gated_mlp
void register_moe(ops::OpTable& table);         // moe_route, moe_gate_up, moe_down, moe_combine
void register_rows(ops::OpTable& table);        // embed, rms_norm
void register_mhc(ops::OpTable& table);         // mhc_mix, mhc_expand, mhc_final
void register_kda(ops::OpTable& table);         // kda, kda_fold
void register_latent(ops::OpTable& table);      // latent_write
void register_indexer(ops::OpTable& table);     // indexer_keys, indexer_select
void register_attention(ops::OpTable& table);   // mla_attend, mla_attend_expanded
void register_sample(ops::OpTable& table);      // sample
void register_window(ops::OpTable& table);      // window_write, window_attend
void register_block_conv(ops::OpTable& table);  // block_conv
void register_draft_path(ops::OpTable& table);  // draft_path

}  // namespace baton::cpu
