#include "model/sublayers.h"

#include <algorithm>
#include <cmath>

namespace baton::model {

void run_kda(Launcher& launcher, const Config& config, const Numerics& numerics, const KdaLayerWeights& w, const ops::KdaSlotLayout& layout,
             const LaunchRows& rows, ConstMatrixView x, MatrixView y) {
  Arena& arena = launcher.arena();
  const ArenaScope scope(arena);
  const ops::OpTable& ops = launcher.ops();
  const int64_t m = x.rows;
  const int64_t c = config.kda_width();
  const DType type = numerics.activation;
  const MatrixView inputs = arena.matrix(type, m, 4 * c + config.kda_heads);  // q^ k^ v^ | a | b
  const MatrixView decay_low = arena.matrix(type, m, config.kda_head_dim);
  const MatrixView gate_low = arena.matrix(type, m, config.kda_head_dim);
  const MatrixView gate = arena.matrix(type, m, c);
  const MatrixView mixed = arena.matrix(type, m, c);

  const ops::GemmOutput projections[] = {{w.q, inputs.columns(0, c)},
                                         {w.k, inputs.columns(c, c)},
                                         {w.v, inputs.columns(2 * c, c)},
                                         {w.b, inputs.columns(4 * c, config.kda_heads)},
                                         {w.f_a, decay_low},
                                         {w.g_a, gate_low}};
  launcher.launch(ops.gemm, {.x = x, .outputs = projections});
  const ops::GemmOutput decay{w.f_b, inputs.columns(3 * c, c)};
  launcher.launch(ops.gemm, {.x = decay_low, .outputs = {&decay, 1}});
  const ops::GemmOutput gate_up{w.g_b, gate};
  launcher.launch(ops.gemm, {.x = gate_low, .outputs = {&gate_up, 1}});
  launcher.launch(ops.kda, {.batch = rows.batch,
                            .inputs = inputs,
                            .gate = gate,
                            .weights = w.small,
                            .slots = rows.slots,
                            .layout = layout,
                            .chunked = numerics.chunked_kda,
                            .y = mixed});
  const ops::GemmOutput out{w.o, y};
  launcher.launch(ops.gemm, {.x = mixed, .outputs = {&out, 1}});
}

ops::Selection allocate_selection(Arena& arena, const Config& config, int64_t rows, int64_t max_pages) {
  ops::Selection s;
  // Short contexts have fewer pools than may be chosen.
  s.pool_capacity = static_cast<int32_t>(std::min(config.topk_pools(), max_pages * ops::kPageTokens / config.index_kpool));
  s.pools = arena.array<int32_t>(rows * s.pool_capacity);
  s.counts = arena.array<int32_t>(rows);
  s.tail_begin = arena.array<int32_t>(rows);
  return s;
}

void run_sparse(Launcher& launcher, const Config& config, const Numerics& numerics, const SparseLayerWeights& w,
                const ops::LatentLayout& latent, const ops::IndexerLayout& index, const LaunchRows& rows, int64_t layer, ConstMatrixView x,
                MatrixView y, const ops::Selection* reuse, ops::Selection* chosen) {
  Arena& arena = launcher.arena();
  const ArenaScope scope(arena);
  const ops::OpTable& ops = launcher.ops();
  const int64_t m = x.rows;
  const int64_t heads = config.heads;
  const DType type = numerics.activation;
  const auto eps = static_cast<float>(config.rms_norm_eps);
  const MatrixView q_low = arena.matrix(type, m, config.q_lora_rank);
  const MatrixView q_normed = arena.matrix(type, m, config.q_lora_rank);
  const MatrixView kv = arena.matrix(type, m, config.kv_lora_rank);
  const MatrixView q = arena.matrix(type, m, heads * config.qk_head_dim);
  const MatrixView index_key = arena.matrix(type, m, config.index_head_dim);
  const MatrixView index_gate = arena.matrix(type, m, config.index_head_dim);
  const MatrixView index_weights = arena.matrix(DType::kF32, m, config.index_heads);
  const MatrixView value = arena.matrix(type, m, heads * config.v_head_dim);

  const ops::GemmOutput low[] = {{w.q_a, q_low}, {w.kv_a, kv}};
  launcher.launch(ops.gemm, {.x = x, .outputs = low, .quant = numerics.quant});
  const ops::GemmOutput indexer[] = {{w.index_k, index_key}, {w.index_gate, index_gate}, {w.index_weights, index_weights}};
  launcher.launch(ops.gemm, {.x = x, .outputs = indexer});
  launcher.launch(ops.rms_norm, {.x = q_low, .weight = w.q_norm, .eps = eps, .y = q_normed});
  const ops::GemmOutput query{w.q_b, q};
  launcher.launch(ops.gemm, {.x = q_normed, .outputs = {&query, 1}, .quant = numerics.quant});
  launcher.launch(ops.latent_write, {.batch = rows.batch, .x = kv, .weight = w.kv_norm, .eps = eps, .pages = rows.pages, .layout = latent});
  constexpr float kLayerNormEps = 1e-6F;  // of the indexer's k_norm alone, whatever rms_norm_eps is
  launcher.launch(ops.indexer_keys, {.batch = rows.batch,
                                     .key = index_key,
                                     .gamma = index_gate,
                                     .norm_weight = w.index_norm_weight,
                                     .norm_bias = w.index_norm_bias,
                                     .norm_eps = kLayerNormEps,
                                     .ape = w.index_ape,
                                     .pages = rows.pages,
                                     .slots = rows.slots,
                                     .layout = index});
  ops::Selection selection;
  if (reuse != nullptr) {
    selection = *reuse;
  } else {
    selection = chosen != nullptr ? *chosen : allocate_selection(arena, config, m, rows.batch.page_table_stride);
    const ArenaScope inner(arena);
    const MatrixView index_query = arena.matrix(type, m, config.index_heads * config.index_head_dim);
    const ops::GemmOutput projection{w.index_q, index_query};
    launcher.launch(ops.gemm, {.x = q_normed, .outputs = {&projection, 1}});
    launcher.launch(ops.indexer_select, {.batch = rows.batch,
                                         .q = index_query,
                                         .weights = index_weights,
                                         .heads = config.index_heads,
                                         .pages = rows.pages,
                                         .layout = index,
                                         .selection = selection});
  }
  if (rows.observer != nullptr && !launcher.planning()) rows.observer->on_selection(layer, selection, m);

  const float scale = 1.0F / std::sqrt(static_cast<float>(config.qk_head_dim));
  const auto pool = static_cast<int32_t>(config.index_kpool);
  if (numerics.expanded_attention) {
    launcher.launch(ops.mla_attend_expanded, {.batch = rows.batch,
                                              .q = q,
                                              .key = w.key_expand.data(),
                                              .value = w.value.data(),
                                              .heads = heads,
                                              .scale = scale,
                                              .pages = rows.pages,
                                              .layout = latent,
                                              .selection = selection,
                                              .pool = pool,
                                              .out = value});
  } else {
    const MatrixView absorbed = arena.matrix(type, m, heads * config.kv_lora_rank);
    const MatrixView attended = arena.matrix(type, m, heads * config.kv_lora_rank);
    launcher.launch(ops.gemm_batched, {.x = q, .w = w.key_absorb, .y = absorbed});
    launcher.launch(ops.mla_attend, {.batch = rows.batch,
                                     .q = absorbed,
                                     .heads = heads,
                                     .scale = scale,
                                     .pages = rows.pages,
                                     .layout = latent,
                                     .selection = selection,
                                     .pool = pool,
                                     .out = attended});
    launcher.launch(ops.gemm_batched, {.x = attended, .w = w.value, .y = value});
  }
  const ops::GemmOutput out{w.o, y};
  launcher.launch(ops.gemm, {.x = value, .outputs = {&out, 1}, .quant = numerics.quant});
}

void run_mlp(Launcher& launcher, const Config& config, const Numerics& numerics, const MlpWeights& w, ConstMatrixView x, MatrixView y) {
  const ArenaScope scope(launcher.arena());
  const MatrixView h = launcher.arena().matrix(numerics.activation, x.rows, w.gate.n);
  launcher.launch(launcher.ops().gated_mlp,
                  {.x = x, .gate = w.gate, .up = w.up, .limit = static_cast<float>(config.swiglu_limit), .h = h, .quant = numerics.quant});
  const ops::GemmOutput out{w.down, y};
  launcher.launch(launcher.ops().gemm, {.x = h, .outputs = {&out, 1}, .quant = numerics.quant});
}

void run_moe(Launcher& launcher, const Config& config, const Numerics& numerics, const MoeWeights& w, Observer* observer, int64_t layer,
             ConstMatrixView x, MatrixView y) {
  Arena& arena = launcher.arena();
  const ArenaScope scope(arena);
  const ops::OpTable& ops = launcher.ops();
  const int64_t m = x.rows;
  const int64_t k = config.experts_per_token;
  ops::ExpertAssignment experts;
  experts.experts = static_cast<int32_t>(config.experts);
  experts.k = static_cast<int32_t>(k);
  experts.ids = arena.array<int32_t>(m * k);
  experts.weights = arena.array<float>(m * k);
  if (!w.prepared) {
    experts.offsets = arena.array<int32_t>(config.experts + 1);
    experts.slot_row = arena.array<int32_t>(m * k);
    experts.row_slot = arena.array<int32_t>(m * k);
  }
  launcher.launch(ops.moe_route, {.x = x,
                                  .router = w.router,
                                  .bias = w.bias,
                                  .renormalise = config.norm_topk_prob,
                                  .scaling = static_cast<float>(config.routed_scaling_factor),
                                  .scores = arena.matrix(DType::kF32, m, config.experts),
                                  .to = experts});
  if (observer != nullptr && !launcher.planning()) observer->on_experts(layer, experts, m);

  MatrixView shared;
  if (config.shared_experts > 0) {
    shared = arena.matrix(numerics.activation, m, config.hidden_size);
    run_mlp(launcher, config, numerics, w.shared, x, shared);
  }
  if (w.prepared) {
    launcher.launch(ops.moe_experts, {.x = x,
                                      .from = experts,
                                      .gate = w.gate.data(),
                                      .up = w.up.data(),
                                      .down = w.down.data(),
                                      .limit = static_cast<float>(config.swiglu_limit),
                                      .quant = numerics.quant,
                                      .shared = shared,
                                      .out = y});
    return;
  }
  const MatrixView h = arena.matrix(numerics.activation, m * k, config.moe_intermediate_size);
  const MatrixView rows = arena.matrix(numerics.activation, m * k, config.hidden_size);
  launcher.launch(ops.moe_gate_up, {.x = x,
                                    .from = experts,
                                    .gate = w.gate.data(),
                                    .up = w.up.data(),
                                    .limit = static_cast<float>(config.swiglu_limit),
                                    .quant = numerics.quant,
                                    .h = h});
  launcher.launch(ops.moe_down, {.h = h, .from = experts, .down = w.down.data(), .quant = numerics.quant, .y = rows});
  launcher.launch(ops.moe_combine, {.y = rows, .from = experts, .shared = shared, .out = y});
}

}  // namespace baton::model
