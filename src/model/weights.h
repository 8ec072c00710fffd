// The weights of glm5_next on a backend.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <variant>
#include <vector>

#include "model/checkpoint.h"
#include "model/config.h"
#include "ops/kda.h"
#include "ops/op_table.h"

namespace baton::model {

struct HyperWeights {
  ops::WeightView fn;            // [(2 + s) s, s d]
  const float* base = nullptr;   // [(2 + s) s]
  const float* scale = nullptr;  // [3]
};

struct KdaLayerWeights {
  ops::WeightView q, k, v, b, f_a, f_b, g_a, g_b, o;
  ops::KdaWeights small;
};

struct SparseLayerWeights {
  ops::WeightView q_a, q_b, kv_a, o;
  ops::WeightView index_q, index_k, index_gate, index_weights;
  std::vector<ops::WeightView> key_absorb;  // [heads] of [kv_lora_rank, qk_head_dim]: transposed key rows of kv_b
  std::vector<ops::WeightView> key_expand;  // [heads] of [qk_head_dim, kv_lora_rank]; empty unless the expanded form is wanted
  std::vector<ops::WeightView> value;       // [heads] of [v_head_dim, kv_lora_rank]
  const float* q_norm = nullptr;
  const float* kv_norm = nullptr;
  const float* index_norm_weight = nullptr;
  const float* index_norm_bias = nullptr;
  const float* index_ape = nullptr;  // [kpool, index_head_dim]
};

struct MlpWeights {
  ops::WeightView gate, up, down;
};

struct MoeWeights {
  ops::WeightView router;
  const float* bias = nullptr;
  std::vector<ops::WeightView> gate, up, down;  // [experts]
  MlpWeights shared;                            // empty views without shared experts
  bool prepared = false;                        // the backend keeps them for moe_experts
};

struct LayerWeights {
  HyperWeights attention_mhc, ffn_mhc;
  const float* input_norm = nullptr;
  const float* post_norm = nullptr;
  std::variant<KdaLayerWeights, SparseLayerWeights> attention;
  std::variant<MlpWeights, MoeWeights> ffn;
};

struct MtpWeights {
  const float* embed_norm = nullptr;
  const float* hidden_norm = nullptr;
  const float* input_norm = nullptr;
  const float* post_norm = nullptr;
  const float* head_norm = nullptr;
  ops::WeightView eh_proj;  // [d, 2 d], embedding half first
  SparseLayerWeights attention;
  MoeWeights moe;
};

// Owns the device memory that all views point into.
struct Weights {
  ConstMatrixView embed;  // [vocabulary, d] row-major
  std::vector<LayerWeights> layers;
  const float* final_norm = nullptr;
  ops::WeightView head;  // [vocabulary, d]
  std::optional<MtpWeights> mtp;
  Buffer memory;
};

struct WeightOptions {
  bool expanded_keys = false;                                // also keep the keys of kv_b for the expanded attention
  int threads = 1;                                           // that read and reorder the checkpoint
  ops::ActivationQuant quant = ops::ActivationQuant::kNone;  // that the weights will be used with
  // Called from the loading threads with bytes done of bytes in all; may be empty.
  std::function<void(int64_t done, int64_t total)> progress;
};

// Copies every text tensor of the checkpoint in the backend's order. Mapped pages are dropped as they are consumed.
Result<Weights> load_weights(const Checkpoint& checkpoint, ops::Backend& backend, const WeightOptions& options);

}  // namespace baton::model
