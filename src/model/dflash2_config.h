// config.json of a DFlash2 drafter, and what it asks of the target that it drafts for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/config.h"

namespace baton::model {

struct DFlash2Config {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;
  int64_t window = 0;  // sliding_window: committed tokens that a block sees
  double rms_norm_eps = 0;
  double rope_theta = 0;

  int64_t block_size = 0;              // the known token and what is drafted behind it
  std::vector<int64_t> target_layers;  // target_layer_ids: features are the target's stream means after these; ascending
  int32_t mask_token_id = 0;           // stands where a token is to be drafted
  int64_t conv_group_size = 0;         // channels that share a dynamic tap
  int64_t selector_rank = 0;
  int64_t selector_top_k = 0;

  int64_t drafts() const { return block_size - 1; }
  int64_t conv_groups() const { return hidden_size / conv_group_size; }
  int64_t feature_width() const { return static_cast<int64_t>(target_layers.size()) * hidden_size; }
};

// Whether DIR/config.json names the architecture of a DFlash2 drafter. False where it cannot be read.
bool is_dflash2_folder(const std::filesystem::path& dir);

// Reads DIR/config.json. The drafter's own settings may stand at the top or in "dflash_config", as in the released ones. What is missing,
// unsupported or impossible is reported together, each with the key and what is accepted.
Result<DFlash2Config> load_dflash2_config(const std::filesystem::path& dir);

// The same from the JSON text; `where` names it in messages.
Result<DFlash2Config> parse_dflash2_config(const std::string& json, const std::string& where);

// Whether this drafter can draft for that target: sizes, vocabulary, layers. `where` names the drafter in messages.
Status check_dflash2_target(const DFlash2Config& drafter, const Config& target, const std::string& where);

}  // namespace baton::model
