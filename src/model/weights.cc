#include "model/weights.h"

#include <cstring>

#include "model/weight_builder.h"

namespace baton::model {
namespace {

std::string layer_name(int64_t l) { return fmt::format("model.language_model.layers.{}.", l); }

class Builder : public WeightBuilder {
 public:
  Builder(const Checkpoint& checkpoint, ops::Backend& backend, const WeightOptions& options, std::byte* base)
      : WeightBuilder(checkpoint.set(), backend, base), config_(checkpoint.config()), options_(options) {}

  Weights build() {
    Weights w;
    const TensorEntry& embed = tensor("model.language_model.embed_tokens.weight");
    w.embed = {raw_copy(embed), embed.dtype, config_.vocab_size, config_.hidden_size, config_.hidden_size};
    for (int64_t l = 0; l < config_.layer_count(); ++l) w.layers.push_back(layer(l));
    w.final_norm = floats("model.language_model.norm.weight");
    w.head = config_.tie_word_embeddings ? matrix("model.language_model.embed_tokens.weight") : matrix("lm_head.weight");
    if (config_.mtp_layers > 0) w.mtp = mtp(layer_name(config_.layer_count()));
    return w;
  }

 private:
  void store_transposed(const ops::WeightView& to, ConstMatrixView host) {
    const int64_t element = dtype_bytes(host.dtype);
    std::vector<std::byte> turned(static_cast<size_t>(host.rows * host.cols * element));
    for (int64_t r = 0; r < host.rows; ++r)
      for (int64_t c = 0; c < host.cols; ++c)
        std::memcpy(&turned[static_cast<size_t>((c * host.rows + r) * element)], host.row_bytes(r) + c * element,
                    static_cast<size_t>(element));
    backend().store_weight(const_cast<void*>(to.data), {turned.data(), host.dtype, host.cols, host.rows, host.rows});
  }

  HyperWeights hyper(const std::string& p, const std::string& site) {
    const std::string name = p + "hc_" + site;
    return {matrix(name + "_fn"), floats(name + "_base"), floats(name + "_scale")};
  }

  KdaLayerWeights kda(const std::string& p) {
    KdaLayerWeights w;
    w.q = matrix(p + "q_proj.weight");
    w.k = matrix(p + "k_proj.weight");
    w.v = matrix(p + "v_proj.weight");
    w.b = matrix(p + "b_proj.weight");
    w.f_a = matrix(p + "f_a_proj.weight");
    w.f_b = matrix(p + "f_b_proj.weight");
    w.g_a = matrix(p + "g_a_proj.weight");
    w.g_b = matrix(p + "g_b_proj.weight");
    w.o = matrix(p + "o_proj.weight");
    w.small.conv = floats({p + "q_conv1d.weight", p + "k_conv1d.weight", p + "v_conv1d.weight"});
    w.small.a_log = floats(p + "A_log");
    w.small.dt_bias = floats(p + "dt_bias");
    w.small.o_norm = floats(p + "o_norm.weight");
    w.small.heads = config_.kda_heads;
    w.small.dim = config_.kda_head_dim;
    w.small.norm_eps = static_cast<float>(config_.rms_norm_eps);
    w.small.lower_bound = static_cast<float>(config_.gate_lower_bound);
    return w;
  }

  SparseLayerWeights sparse(const std::string& p) {
    SparseLayerWeights w;
    w.q_a = matrix(p + "q_a_proj.weight");
    w.q_b = matrix(p + "q_b_proj.weight");
    w.kv_a = matrix(p + "kv_a_proj_with_mqa.weight");
    w.o = matrix(p + "o_proj.weight");
    w.q_norm = floats(p + "q_a_layernorm.weight");
    w.kv_norm = floats(p + "kv_a_layernorm.weight");
    const TensorEntry& kv_b = tensor(p + "kv_b_proj.weight");
    const int64_t per_head = config_.qk_head_dim + config_.v_head_dim;
    for (int64_t h = 0; h < config_.heads; ++h) {
      const ConstMatrixView key = matrix_of(kv_b).row_range(h * per_head, config_.qk_head_dim);
      const ConstMatrixView value = matrix_of(kv_b).row_range(h * per_head + config_.qk_head_dim, config_.v_head_dim);
      w.key_absorb.push_back(reserve(key.dtype, key.cols, key.rows));
      w.value.push_back(reserve(value.dtype, value.rows, value.cols));
      if (options_.expanded_keys) w.key_expand.push_back(reserve(key.dtype, key.rows, key.cols));
      job((key.rows + value.rows) * key.cols * dtype_bytes(key.dtype),
          [this, key, value, absorb = w.key_absorb.back(), store = w.value.back(),
           expand = options_.expanded_keys ? w.key_expand.back() : ops::WeightView{}] {
            store_transposed(absorb, key);
            backend().store_weight(const_cast<void*>(store.data), value);
            if (!expand.empty()) backend().store_weight(const_cast<void*>(expand.data), key);
            TensorSet::drop_pages(key.row_bytes(0), (key.rows + value.rows) * key.cols * dtype_bytes(key.dtype));
          });
    }
    const std::string i = p + "indexer.";
    w.index_q = matrix(i + "wq_b.weight");
    w.index_k = matrix(i + "wk.weight");
    w.index_gate = matrix(i + "index_kpool_compress_gate");
    w.index_weights = matrix(i + "weights_proj.weight");
    w.index_norm_weight = floats(i + "k_norm.weight");
    w.index_norm_bias = floats(i + "k_norm.bias");
    w.index_ape = floats(i + "index_kpool_compress_ape");
    return w;
  }

  MlpWeights mlp(const std::string& p) {
    return {matrix(p + "gate_proj.weight"), matrix(p + "up_proj.weight"), matrix(p + "down_proj.weight")};
  }

  MoeWeights moe(const std::string& p) {
    MoeWeights w;
    w.router = matrix(p + "gate.weight");
    w.bias = floats(p + "gate.e_score_correction_bias");
    if (config_.shared_experts > 0) w.shared = mlp(p + "shared_experts.");
    for (int64_t e = 0; e < config_.experts; ++e) {
      MlpWeights expert = mlp(fmt::format("{}experts.{}.", p, e));
      w.gate.push_back(expert.gate);
      w.up.push_back(expert.up);
      w.down.push_back(expert.down);
    }
    return w;
  }

  LayerWeights layer(int64_t l) {
    const std::string p = layer_name(l);
    LayerWeights w;
    w.attention_mhc = hyper(p, "attn");
    w.ffn_mhc = hyper(p, "ffn");
    w.input_norm = floats(p + "input_layernorm.weight");
    w.post_norm = floats(p + "post_attention_layernorm.weight");
    const LayerKind kind = config_.layers[static_cast<size_t>(l)];
    if (kind.attention == AttentionKind::kKda)
      w.attention = kda(p + "self_attn.");
    else
      w.attention = sparse(p + "self_attn.");
    if (kind.mlp == MlpKind::kDense)
      w.ffn = mlp(p + "mlp.");
    else
      w.ffn = moe(p + "mlp.");
    return w;
  }

  MtpWeights mtp(const std::string& p) {
    MtpWeights w;
    w.embed_norm = floats(p + "enorm.weight");
    w.hidden_norm = floats(p + "hnorm.weight");
    w.input_norm = floats(p + "input_layernorm.weight");
    w.post_norm = floats(p + "post_attention_layernorm.weight");
    w.head_norm = floats(p + "shared_head.norm.weight");
    w.eh_proj = matrix(p + "eh_proj.weight");
    w.attention = sparse(p + "self_attn.");
    w.moe = moe(p + "mlp.");
    return w;
  }

  const Config& config_;
  const WeightOptions& options_;
};

}  // namespace

Result<Weights> load_weights(const Checkpoint& checkpoint, ops::Backend& backend, const WeightOptions& options) {
  Builder plan(checkpoint, backend, options, nullptr);
  plan.build();
  BATON_ASSIGN(Buffer memory, backend.allocate(plan.bytes()));
  Builder builder(checkpoint, backend, options, memory.data());
  Weights weights = builder.build();
  BATON_TRY(builder.run_jobs(options.threads, options.progress));
  const auto prepare = [&](MoeWeights& moe) { moe.prepared = backend.prepare_experts(moe.gate, moe.up, moe.down, options.quant); };
  for (LayerWeights& layer : weights.layers)
    if (auto* moe = std::get_if<MoeWeights>(&layer.ffn)) prepare(*moe);
  if (weights.mtp) prepare(weights.mtp->moe);
  weights.memory = std::move(memory);
  return weights;
}

}  // namespace baton::model
