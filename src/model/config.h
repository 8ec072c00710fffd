// config.json of a glm5_next checkpoint. Every dimension of the model comes from here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace baton::model {

enum class AttentionKind : uint8_t { kKda, kSparse };
enum class MlpKind : uint8_t { kDense, kMoe };

struct LayerKind {
  AttentionKind attention;
  MlpKind mlp;
};

struct Config {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t max_position_embeddings = 0;
  std::vector<LayerKind> layers;  // num_hidden_layers entries; MTP layers (a sparse, MoE block each) follow them in the checkpoint
  int64_t mtp_layers = 0;         // num_nextn_predict_layers: 0 or 1
  bool tie_word_embeddings = false;
  double rms_norm_eps = 0;

  // mHC
  int64_t streams = 0;  // hc_mult
  int64_t sinkhorn_iterations = 0;
  double hc_eps = 0;

  // KDA (linear_attn_config)
  int64_t kda_heads = 0;
  int64_t kda_head_dim = 0;  // key and value
  double gate_lower_bound = -5;
  int64_t conv_kernel = 4;  // only 4 is supported

  // Sparse MLA
  int64_t heads = 0;
  int64_t q_lora_rank = 0;
  int64_t kv_lora_rank = 0;
  int64_t qk_head_dim = 0;  // qk_nope_head_dim; the rotary part must be 0
  int64_t v_head_dim = 0;
  int64_t index_heads = 0;
  int64_t index_head_dim = 0;
  int64_t index_topk = 0;   // tokens; a multiple of index_kpool
  int64_t index_kpool = 0;  // divides 64
  bool index_share_for_mtp = false;

  // Feed-forward
  int64_t intermediate_size = 0;
  int64_t moe_intermediate_size = 0;
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  int64_t shared_experts = 0;
  double swiglu_limit = 0;
  double routed_scaling_factor = 1;
  bool norm_topk_prob = true;

  // Generation defaults; from generation_config.json where present, else from text_config. May be empty.
  std::vector<int32_t> eos_token_ids;

  int64_t kda_width() const { return kda_heads * kda_head_dim; }
  int64_t layer_count() const { return static_cast<int64_t>(layers.size()); }
  int64_t topk_pools() const { return index_topk / index_kpool; }
};

// DIR/config.json as it stands, and its path for messages. A folder that is not there, or a file in its place, is said to be so.
struct ConfigFile {
  std::string json;
  std::string name;
};
Result<ConfigFile> read_config_file(const std::filesystem::path& dir, int64_t limit_bytes);

// Reads DIR/config.json (text part only). Unknown model types, unsupported settings (rotary part, n_group > 1, another scoring function,
// another conv width ...) and impossible sizes are reported together, each with the key and what is accepted.
Result<Config> load_config(const std::filesystem::path& dir);

// The same from the JSON text; `where` names it in messages.
Result<Config> parse_config(const std::string& json, const std::string& where);

}  // namespace baton::model
