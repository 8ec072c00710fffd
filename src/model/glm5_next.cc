#include "model/glm5_next.h"

namespace baton::model {

Result<std::unique_ptr<Glm5Next>> Glm5Next::load(const Checkpoint& checkpoint, ops::Backend& backend, const ModelOptions& options) {
  std::unique_ptr<Glm5Next> model(new Glm5Next(checkpoint.config(), backend, options));
  model->options_.cache.activation = options.numerics.activation;
  model->options_.loading.expanded_keys = options.numerics.expanded_attention;
  model->options_.loading.quant = options.numerics.quant;
  model->layout_ = plan_cache(model->config_, model->options_.cache, options.drafter);
  BATON_ASSIGN(model->weights_, load_weights(checkpoint, backend, model->options_.loading));
  Launcher planner(backend);
  model->plan(planner);
  BATON_ASSIGN(model->workspace_, backend.allocate(planner.planned_bytes()));
  BATON_ASSIGN(model->fold_arguments_, backend.allocate(2 * options.max_sequences * int64_t{sizeof(int32_t)}));
  model->fold_staging_.resize(static_cast<size_t>(2 * options.max_sequences));
  return model;
}

// The largest launches that the options allow, with null data.
void Glm5Next::plan(Launcher& planner) const {
  const DType type = options_.numerics.activation;
  const auto view = [](DType t, int64_t rows, int64_t cols) { return MatrixView{nullptr, t, rows, cols, cols}; };
  ForwardInput input;
  input.rows.batch.sequence_count = static_cast<int32_t>(options_.max_sequences);
  input.rows.batch.row_count = static_cast<int32_t>(options_.max_rows);
  input.rows.batch.page_table_stride = static_cast<int32_t>(options_.max_pages);
  const MatrixView hidden = view(type, options_.max_rows, config_.hidden_size);
  const auto layers = static_cast<int64_t>(options_.drafter.feature_layers.size());
  run_forward(planner, input, hidden, view(type, layers > 0 ? options_.max_rows : 0, layers * config_.hidden_size));
  if (weights_.mtp && options_.cache.mtp) {
    ops::Selection selection;
    selection.pool_capacity = static_cast<int32_t>(config_.topk_pools());
    run_mtp(planner, input, hidden, hidden, selection, true);
  }
  const MatrixView logits = view(DType::kF32, options_.max_logits_rows, config_.vocab_size);
  const ops::GemmOutput out{weights_.head, logits};
  planner.launch(planner.ops().gemm, {.x = view(type, options_.max_logits_rows, config_.hidden_size), .outputs = {&out, 1}});
  planner.launch(planner.ops().sample, {.logits = logits});
  if (!layout_.kda.empty())
    for (size_t l = 0; l < weights_.layers.size(); ++l)
      if (const auto* kda = std::get_if<KdaLayerWeights>(&weights_.layers[l].attention))
        planner.launch(planner.ops().kda_fold,
                       {.count = static_cast<int32_t>(options_.max_sequences), .weights = kda->small, .layout = layout_.kda.front()});
}

void Glm5Next::run_forward(Launcher& launcher, const ForwardInput& input, MatrixView hidden, MatrixView features) const {
  Arena& arena = launcher.arena();
  const ArenaScope scope(arena);
  const ops::OpTable& ops = launcher.ops();
  const int64_t m = input.rows.batch.row_count;
  const int64_t s = config_.streams;
  const int64_t d = config_.hidden_size;
  const DType type = options_.numerics.activation;
  Observer* observer = launcher.planning() ? nullptr : input.rows.observer;

  const MatrixView streams = arena.matrix(type, m, s * d);
  const MatrixView x = arena.matrix(type, m, d);
  const MatrixView y = arena.matrix(type, m, d);
  const ops::MhcCoefficients mhc{arena.matrix(DType::kF32, m, s), arena.matrix(DType::kF32, m, s * s)};
  bool pending = false;  // y awaits its expansion, which the next mix does together with its own work

  const auto expand = [&] {
    if (pending) launcher.launch(ops.mhc_expand, {.streams = streams, .y = y, .from = mhc, .stream_count = s});
    pending = false;
  };
  const auto mix = [&](const HyperWeights& w, const float* norm) {
    ops::MhcMixParams p;
    p.streams = streams;
    if (pending) p.y = y;
    p.from = mhc;
    p.stream_count = s;
    p.fn = w.fn;
    p.base = w.base;
    p.scale = w.scale;
    p.norm_weight = norm;
    p.norm_eps = static_cast<float>(config_.rms_norm_eps);
    p.hc_eps = static_cast<float>(config_.hc_eps);
    p.sinkhorn_iterations = static_cast<int>(config_.sinkhorn_iterations);
    p.to = mhc;
    p.x = x;
    launcher.launch(ops.mhc_mix, p);
    pending = true;
  };

  launcher.launch(ops.embed, {.ids = input.ids, .table = weights_.embed, .streams = s, .y = streams});
  if (observer != nullptr) observer->on_streams(0, streams);
  size_t kda_index = 0;
  size_t sparse_index = 0;
  size_t feature = 0;
  for (int64_t l = 0; l < config_.layer_count(); ++l) {
    const LayerWeights& w = weights_.layers[static_cast<size_t>(l)];
    mix(w.attention_mhc, w.input_norm);
    if (const auto* kda = std::get_if<KdaLayerWeights>(&w.attention)) {
      run_kda(launcher, config_, options_.numerics, *kda, layout_.kda[kda_index++], input.rows, x, y);
    } else {
      run_sparse(launcher, config_, options_.numerics, std::get<SparseLayerWeights>(w.attention), layout_.latent[sparse_index],
                 layout_.index[sparse_index], input.rows, l, x, y, nullptr, nullptr);
      ++sparse_index;
    }
    mix(w.ffn_mhc, w.post_norm);
    if (const auto* dense = std::get_if<MlpWeights>(&w.ffn))
      run_mlp(launcher, config_, options_.numerics, *dense, x, y);
    else
      run_moe(launcher, config_, options_.numerics, std::get<MoeWeights>(w.ffn), observer, l, x, y);
    if (observer != nullptr) {
      expand();
      observer->on_streams(l + 1, streams);
    }
    const std::vector<int64_t>& wanted = options_.drafter.feature_layers;
    if (features.rows > 0 && feature < wanted.size() && wanted[feature] == l) {
      expand();
      launcher.launch(ops.mhc_final,
                      {.streams = streams, .stream_count = s, .h = features.columns(static_cast<int64_t>(feature++) * d, d)});
    }
  }
  expand();
  launcher.launch(ops.mhc_final, {.streams = streams,
                                  .stream_count = s,
                                  .norm_weight = weights_.final_norm,
                                  .norm_eps = static_cast<float>(config_.rms_norm_eps),
                                  .h = hidden});
}

void Glm5Next::run_mtp(Launcher& launcher, const ForwardInput& input, ConstMatrixView hidden, MatrixView out, ops::Selection selection,
                       bool choose) const {
  Arena& arena = launcher.arena();
  const ArenaScope scope(arena);
  const ops::OpTable& ops = launcher.ops();
  const MtpWeights& w = *weights_.mtp;
  const int64_t m = input.rows.batch.row_count;
  const int64_t d = config_.hidden_size;
  const DType type = options_.numerics.activation;
  const auto eps = static_cast<float>(config_.rms_norm_eps);
  const MatrixView embedded = arena.matrix(type, m, d);
  const MatrixView pair = arena.matrix(type, m, 2 * d);
  const MatrixView z = arena.matrix(type, m, d);
  const MatrixView x = arena.matrix(type, m, d);
  const MatrixView y = arena.matrix(type, m, d);

  launcher.launch(ops.embed, {.ids = input.ids, .table = weights_.embed, .streams = 1, .y = embedded});
  launcher.launch(ops.rms_norm, {.x = embedded, .weight = w.embed_norm, .eps = eps, .y = pair.columns(0, d)});
  launcher.launch(ops.rms_norm, {.x = hidden, .weight = w.hidden_norm, .eps = eps, .y = pair.columns(d, d)});
  const ops::GemmOutput projection{w.eh_proj, z};
  launcher.launch(ops.gemm, {.x = pair, .outputs = {&projection, 1}});
  launcher.launch(ops.rms_norm, {.x = z, .weight = w.input_norm, .eps = eps, .y = x});
  run_sparse(launcher, config_, options_.numerics, w.attention, layout_.latent.back(), layout_.index.back(), input.rows,
             config_.layer_count(), x, y, choose ? nullptr : &selection, choose ? &selection : nullptr);
  launcher.launch(ops.rms_norm, {.x = y, .add_to = z, .weight = w.post_norm, .eps = eps, .y = x});
  run_moe(launcher, config_, options_.numerics, w.moe, input.rows.observer, config_.layer_count(), x, y);
  launcher.launch(ops.rms_norm, {.x = y, .add_to = z, .weight = w.head_norm, .eps = eps, .y = out});
}

void Glm5Next::forward(const ForwardInput& input, MatrixView hidden, MatrixView features) {
  Launcher run = launcher();
  run_forward(run, input, hidden, features);
}

void Glm5Next::embed(const int32_t* ids, MatrixView x) {
  Launcher run = launcher();
  run.launch(run.ops().embed, {.ids = ids, .table = weights_.embed, .streams = 1, .y = x});
}

void Glm5Next::mtp(const ForwardInput& input, ConstMatrixView hidden, MatrixView out, const ops::Selection& selection, bool choose) {
  BATON_CHECK(weights_.mtp.has_value() && options_.cache.mtp);
  Launcher run = launcher();
  run_mtp(run, input, hidden, out, selection, choose);
}

void Glm5Next::head(ConstMatrixView hidden, MatrixView logits) {
  Launcher run = launcher();
  const ops::GemmOutput out{weights_.head, logits};
  run.launch(run.ops().gemm, {.x = hidden, .outputs = {&out, 1}});
}

void Glm5Next::sample(ConstMatrixView logits, const ops::SamplingRow* rows, int32_t* ids) {
  Launcher run = launcher();
  run.launch(run.ops().sample, {.logits = logits, .rows = rows, .ids = ids});
}

void Glm5Next::sample(const ops::SampleParams& params) {
  Launcher run = launcher();
  run.launch(run.ops().sample, params);
}

void Glm5Next::fold(const int32_t* slot_ids, const int32_t* counts, int32_t count, ops::SlotPoolView slots) {
  Launcher run = launcher();
  size_t k = 0;
  for (const LayerWeights& layer : weights_.layers)
    if (const auto* kda = std::get_if<KdaLayerWeights>(&layer.attention))
      run.launch(
          run.ops().kda_fold,
          {.slot_ids = slot_ids, .counts = counts, .count = count, .weights = kda->small, .slots = slots, .layout = layout_.kda[k++]});
}

void Glm5Next::materialise(std::span<const int32_t> slot_ids, ops::SlotPoolView slots) {
  BATON_CHECK(static_cast<int64_t>(slot_ids.size()) <= options_.max_sequences);
  const auto capacity = static_cast<size_t>(options_.max_sequences);
  size_t n = 0;
  for (const int32_t id : slot_ids) {
    int32_t count = 0;
    backend_.copy_to_host(&count, slots.slot(id) + layout_.fold_count_offset, sizeof count);
    if (count == 0) continue;
    fold_staging_[n] = id;
    fold_staging_[capacity + n] = count;
    ++n;
  }
  if (n == 0) return;
  backend_.copy_to_device(fold_arguments_.data(), fold_staging_.data(), static_cast<int64_t>(fold_staging_.size() * sizeof(int32_t)));
  const auto* ids = reinterpret_cast<const int32_t*>(fold_arguments_.data());
  fold(ids, ids + capacity, static_cast<int32_t>(n), slots);
  for (size_t i = 0; i < n; ++i) backend_.clear_on_device(slots.slot(fold_staging_[i]) + layout_.fold_count_offset, sizeof(int32_t));
}

}  // namespace baton::model
