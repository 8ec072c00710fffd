// The tensors that the architecture needs, listed once for validation, synthesis and memory plans.
#include <fmt/format.h>

#include "model/checkpoint.h"

namespace baton::model {
namespace {

class TensorList {
 public:
  explicit TensorList(const Config& config) : c_(config) {}

  std::vector<TensorSpec> build() {
    add("model.language_model.embed_tokens.weight", {c_.vocab_size, c_.hidden_size});
    for (int64_t l = 0; l < c_.layer_count(); ++l) decoder_layer(l);
    for (int64_t l = 0; l < c_.mtp_layers; ++l) mtp_layer(c_.layer_count() + l);
    layer_ = -1;
    add("model.language_model.norm.weight", {c_.hidden_size});
    if (!c_.tie_word_embeddings) add("lm_head.weight", {c_.vocab_size, c_.hidden_size});
    return std::move(list_);
  }

 private:
  void add(std::string name, std::vector<int64_t> shape, StorageClass storage = StorageClass::kWeight) {
    list_.push_back({std::move(name), std::move(shape), storage, layer_});
  }
  // Linear layers map `in` to `out` features: [out, in].
  void linear(const std::string& name, int64_t out, int64_t in) { add(name + ".weight", {out, in}); }
  void quantisable(const std::string& name, int64_t out, int64_t in) { add(name + ".weight", {out, in}, StorageClass::kQuantisable); }
  void norm(const std::string& name, int64_t size) { add(name + ".weight", {size}); }

  std::string begin_layer(int64_t l) {
    layer_ = static_cast<int32_t>(l);
    return fmt::format("model.language_model.layers.{}.", l);
  }

  void decoder_layer(int64_t l) {
    const std::string p = begin_layer(l);
    const LayerKind kind = c_.layers[static_cast<size_t>(l)];
    for (const char* site : {"attn", "ffn"}) {
      const int64_t mixes = (2 + c_.streams) * c_.streams;
      add(fmt::format("{}hc_{}_fn", p, site), {mixes, c_.streams * c_.hidden_size});
      add(fmt::format("{}hc_{}_base", p, site), {mixes}, StorageClass::kFloat);
      add(fmt::format("{}hc_{}_scale", p, site), {3}, StorageClass::kFloat);
    }
    norm(p + "input_layernorm", c_.hidden_size);
    norm(p + "post_attention_layernorm", c_.hidden_size);
    kind.attention == AttentionKind::kKda ? kda(p + "self_attn.") : sparse(p + "self_attn.");
    kind.mlp == MlpKind::kDense ? mlp(p + "mlp.", c_.intermediate_size) : moe(p + "mlp.");
  }

  // A plain pre-norm block without mHC. Embedding and head are the main model's.
  void mtp_layer(int64_t l) {
    const std::string p = begin_layer(l);
    for (const char* name : {"enorm", "hnorm", "input_layernorm", "post_attention_layernorm", "shared_head.norm"})
      norm(p + name, c_.hidden_size);
    linear(p + "eh_proj", c_.hidden_size, 2 * c_.hidden_size);
    sparse(p + "self_attn.");
    moe(p + "mlp.");
  }

  void kda(const std::string& p) {
    const int64_t width = c_.kda_width();
    const int64_t d = c_.hidden_size;
    for (const char* x : {"q", "k", "v"}) linear(fmt::format("{}{}_proj", p, x), width, d);
    for (const char* x : {"q", "k", "v"}) add(fmt::format("{}{}_conv1d.weight", p, x), {width, 1, c_.conv_kernel});
    linear(p + "b_proj", c_.kda_heads, d);
    linear(p + "f_a_proj", c_.kda_head_dim, d);
    linear(p + "f_b_proj", width, c_.kda_head_dim);
    linear(p + "g_a_proj", c_.kda_head_dim, d);
    linear(p + "g_b_proj", width, c_.kda_head_dim);
    add(p + "A_log", {c_.kda_heads}, StorageClass::kFloat);
    add(p + "dt_bias", {width}, StorageClass::kFloat);
    norm(p + "o_norm", c_.kda_head_dim);
    linear(p + "o_proj", d, width);
  }

  void sparse(const std::string& p) {
    const int64_t d = c_.hidden_size;
    quantisable(p + "q_a_proj", c_.q_lora_rank, d);
    norm(p + "q_a_layernorm", c_.q_lora_rank);
    quantisable(p + "q_b_proj", c_.heads * c_.qk_head_dim, c_.q_lora_rank);
    quantisable(p + "kv_a_proj_with_mqa", c_.kv_lora_rank, d);
    norm(p + "kv_a_layernorm", c_.kv_lora_rank);
    linear(p + "kv_b_proj", c_.heads * (c_.qk_head_dim + c_.v_head_dim), c_.kv_lora_rank);
    quantisable(p + "o_proj", d, c_.heads * c_.v_head_dim);
    const std::string i = p + "indexer.";
    linear(i + "wq_b", c_.index_heads * c_.index_head_dim, c_.q_lora_rank);
    linear(i + "wk", c_.index_head_dim, d);
    norm(i + "k_norm", c_.index_head_dim);
    add(i + "k_norm.bias", {c_.index_head_dim});
    linear(i + "weights_proj", c_.index_heads, d);
    add(i + "index_kpool_compress_gate", {c_.index_head_dim, d});
    add(i + "index_kpool_compress_ape", {c_.index_kpool, c_.index_head_dim});
  }

  void mlp(const std::string& p, int64_t width) {
    quantisable(p + "gate_proj", width, c_.hidden_size);
    quantisable(p + "up_proj", width, c_.hidden_size);
    quantisable(p + "down_proj", c_.hidden_size, width);
  }

  void moe(const std::string& p) {
    linear(p + "gate", c_.experts, c_.hidden_size);
    add(p + "gate.e_score_correction_bias", {c_.experts}, StorageClass::kFloat);
    if (c_.shared_experts > 0) mlp(p + "shared_experts.", c_.moe_intermediate_size * c_.shared_experts);
    for (int64_t e = 0; e < c_.experts; ++e) mlp(fmt::format("{}experts.{}.", p, e), c_.moe_intermediate_size);
  }

  const Config& c_;
  int32_t layer_ = -1;
  std::vector<TensorSpec> list_;
};

}  // namespace

std::vector<TensorSpec> expected_tensors(const Config& config) { return TensorList(config).build(); }

}  // namespace baton::model
