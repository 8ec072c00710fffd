#include "model/dflash2_checkpoint.h"

#include <fmt/format.h>

namespace baton::model {

std::vector<TensorSpec> dflash2_tensors(const DFlash2Config& c) {
  std::vector<TensorSpec> list;
  int32_t layer = -1;
  const auto add = [&](std::string name, std::vector<int64_t> shape) {
    list.push_back({std::move(name), std::move(shape), StorageClass::kWeight, layer});
  };
  const int64_t d = c.hidden_size;
  const int64_t kv = c.kv_heads * c.head_dim;
  add("fc.weight", {d, c.feature_width()});
  add("hidden_norm.weight", {d});
  for (int64_t l = 0; l < c.layers; ++l) {
    layer = static_cast<int32_t>(l);
    const std::string p = fmt::format("layers.{}.", l);
    add(p + "input_layernorm.weight", {d});
    add(p + "post_attention_layernorm.weight", {d});
    add(p + "self_attn.q_proj.weight", {c.heads * c.head_dim, d});
    add(p + "self_attn.k_proj.weight", {kv, d});
    add(p + "self_attn.v_proj.weight", {kv, d});
    add(p + "self_attn.o_proj.weight", {d, c.heads * c.head_dim});
    add(p + "self_attn.q_norm.weight", {c.head_dim});
    add(p + "self_attn.k_norm.weight", {c.head_dim});
    add(p + "mlp.gate_proj.weight", {c.intermediate_size, d});
    add(p + "mlp.up_proj.weight", {c.intermediate_size, d});
    add(p + "mlp.down_proj.weight", {d, c.intermediate_size});
    for (const char* site : {"attention_conv", "mlp_conv"}) {
      add(fmt::format("{}{}.base_kernel", p, site), {2, 2, d});
      add(fmt::format("{}{}.kernel_projection.weight", p, site), {4 * c.conv_groups(), d});
    }
  }
  layer = -1;
  add("norm.weight", {d});
  add("candidate_selector.predecessor_codebook", {c.vocab_size, c.selector_rank});
  add("candidate_selector.successor_codebook", {c.vocab_size, c.selector_rank});
  add("candidate_selector.hidden_projection.weight", {c.selector_rank, d});
  return list;
}

Result<DFlash2Checkpoint> DFlash2Checkpoint::open(const std::filesystem::path& dir) {
  DFlash2Checkpoint checkpoint;
  BATON_ASSIGN(checkpoint.config_, load_dflash2_config(dir));
  BATON_ASSIGN(checkpoint.set_, TensorSet::open(dir, dflash2_tensors(checkpoint.config_), {}));
  return checkpoint;
}

}  // namespace baton::model
