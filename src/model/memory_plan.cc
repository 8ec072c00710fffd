#include "model/memory_plan.h"

#include <charconv>

#include "ops/weight.h"

namespace baton::model {
namespace {

constexpr std::string_view kLayers = "model.language_model.layers.";

struct LayerName {
  int64_t layer = -1;     // -1: not of a layer
  std::string_view rest;  // behind the layer's number
};

LayerName split_layer(std::string_view name) {
  if (!name.starts_with(kLayers)) return {-1, name};
  LayerName out;
  const std::string_view tail = name.substr(kLayers.size());
  const auto [end, failure] = std::from_chars(tail.data(), tail.data() + tail.size(), out.layer);
  if (failure != std::errc{}) return {-1, name};
  out.rest = tail.substr(static_cast<size_t>(end - tail.data()));
  return out;
}

Part attention_part(std::string_view rest, AttentionKind kind) {
  if (kind == AttentionKind::kKda) return Part::kKda;
  return rest.starts_with(".self_attn.indexer.") ? Part::kIndexer : Part::kSparseAttention;
}

Part mlp_part(std::string_view rest, MlpKind kind) {
  if (kind == MlpKind::kDense) return Part::kDenseMlp;
  if (rest.starts_with(".mlp.experts.")) return Part::kRoutedExperts;
  return rest.starts_with(".mlp.shared_experts.") ? Part::kSharedExperts : Part::kRouter;
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

std::string_view part_name(Part part) {
  switch (part) {
    case Part::kEmbedding: return "embedding";
    case Part::kHead: return "head";
    case Part::kNorms: return "norms";
    case Part::kHyperConnections: return "mHC";
    case Part::kKda: return "KDA attention";
    case Part::kSparseAttention: return "sparse attention";
    case Part::kIndexer: return "indexer";
    case Part::kDenseMlp: return "dense MLP";
    case Part::kRouter: return "router";
    case Part::kSharedExperts: return "shared experts";
    case Part::kRoutedExperts: return "routed experts";
    case Part::kMtp: return "MTP layer, rest";
    case Part::kMtpRoutedExperts: return "MTP routed experts";
  }
  return "?";
}

Part part_of(std::string_view name, const Config& config) {
  const auto [layer, rest] = split_layer(name);
  if (layer < 0) {
    if (name == "lm_head.weight") return Part::kHead;
    return name == "model.language_model.embed_tokens.weight" ? Part::kEmbedding : Part::kNorms;
  }
  if (layer >= config.layer_count()) return rest.starts_with(".mlp.experts.") ? Part::kMtpRoutedExperts : Part::kMtp;
  const LayerKind kind = config.layers[static_cast<size_t>(layer)];
  if (rest.starts_with(".self_attn.")) return attention_part(rest, kind.attention);
  if (rest.starts_with(".mlp.")) return mlp_part(rest, kind.mlp);
  return rest.starts_with(".hc_") ? Part::kHyperConnections : Part::kNorms;
}

void PartSize::add(const PartSize& other) {
  tensors += other.tensors;
  parameters += other.parameters;
  scales += other.scales;
  for (size_t i = 0; i < bytes_by_dtype.size(); ++i) bytes_by_dtype[i] += other.bytes_by_dtype[i];
}

PartSize WeightSizes::total() const {
  PartSize sum = main_model();
  sum.add(mtp_layer());
  return sum;
}

PartSize WeightSizes::main_model() const {
  PartSize sum;
  for (size_t i = 0; i < kPartCount; ++i)
    if (i != static_cast<size_t>(Part::kMtp) && i != static_cast<size_t>(Part::kMtpRoutedExperts)) sum.add(parts[i]);
  return sum;
}

PartSize WeightSizes::mtp_layer() const {
  PartSize sum = (*this)[Part::kMtp];
  sum.add((*this)[Part::kMtpRoutedExperts]);
  return sum;
}

WeightSizes measure_weights(const std::vector<StoredTensor>& tensors, const Config& config) {
  WeightSizes sizes;
  for (const StoredTensor& t : tensors) {
    const bool scale = t.name.ends_with(kScaleSuffix);
    PartSize one;
    one.tensors = 1;
    (scale ? one.scales : one.parameters) = t.elements();
    one.bytes_by_dtype[static_cast<size_t>(t.dtype)] = t.bytes();
    sizes.parts[static_cast<size_t>(part_of(t.name, config))].add(one);
  }
  // A tied head reads the whole embedding; otherwise a token needs a single row of it.
  const int64_t routed = sizes[Part::kRoutedExperts].parameters;
  sizes.active_parameters = sizes.main_model().parameters - routed + routed / config.experts * config.experts_per_token;
  if (!config.tie_word_embeddings) sizes.active_parameters += config.hidden_size - sizes[Part::kEmbedding].parameters;
  return sizes;
}

GpuShare gpu_share(const WeightSizes& sizes, const Config& config, int gpus) {
  GpuShare share;
  share.gpus = gpus;
  share.experts = ceil_div(config.experts, gpus);
  const int64_t routed = sizes[Part::kRoutedExperts].bytes() + sizes[Part::kMtpRoutedExperts].bytes();
  share.replicated_bytes = sizes.total().bytes() - routed;
  share.expert_bytes = routed / config.experts * share.experts;
  share.splittable_bytes = sizes[Part::kEmbedding].bytes() + sizes[Part::kHead].bytes() + sizes[Part::kDenseMlp].bytes();
  return share;
}

CacheSizes cache_sizes(const Config& config) {
  int64_t sparse = 0;
  for (const LayerKind& layer : config.layers) sparse += layer.attention == AttentionKind::kSparse ? 1 : 0;
  const int64_t kda = config.layer_count() - sparse;
  const int64_t mtp = config.mtp_layers;
  const int64_t rank = config.kv_lora_rank;
  const int64_t dim = config.index_head_dim;
  const int64_t width = config.kda_width();
  const int64_t bf16_bytes = dtype_bytes(DType::kBF16);

  CacheSizes c;
  c.latent_bf16 = sparse * rank * bf16_bytes;
  c.latent_bf16_mtp = mtp * rank * bf16_bytes;
  c.latent_fp8 = sparse * (rank + 4 * ceil_div(rank, ops::kScaleBlock));
  c.latent_fp8_mtp = mtp * (rank + 4 * ceil_div(rank, ops::kScaleBlock));
  c.index_bf16 = sparse * dim * bf16_bytes;
  c.index_bf16_mtp = mtp * dim * bf16_bytes;
  c.index_fp8 = sparse * (dim + 4);
  c.index_fp8_mtp = mtp * (dim + 4);
  c.state_f32 = kda * width * config.kda_head_dim * 4;
  c.state_bf16 = c.state_f32 / 2;
  c.window_bf16 = kda * (config.conv_kernel - 1) * 3 * width * bf16_bytes;
  c.tail_bf16 = sparse * config.index_kpool * 2 * dim * bf16_bytes;
  c.tail_bf16_mtp = mtp * config.index_kpool * 2 * dim * bf16_bytes;
  return c;
}

}  // namespace baton::model
