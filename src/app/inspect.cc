// baton inspect: what a checkpoint holds, and what it needs on the GPUs of a layout; or what a drafter holds.
#include <fmt/format.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <memory>

#include "app/commands.h"
#include "app/inspect_drafter.h"
#include "model/dflash2_config.h"
#include "model/json_text.h"
#include "model/memory_plan.h"

namespace baton::app {
namespace {

constexpr int kLayouts[] = {1, 2, 4, 8};
constexpr std::string_view kLayoutNote =
    "data-parallel attention, expert-parallel routed experts; everything else on every GPU "
    "(split: embedding, head and dense MLPs divided among the GPUs as well)";

std::string gib(int64_t bytes) { return readable_bytes(bytes); }

struct LayerCounts {
  int64_t kda = 0, sparse = 0, dense = 0, moe = 0;
};

LayerCounts count_layers(const model::Config& c) {
  LayerCounts n;
  for (const model::LayerKind& layer : c.layers) {
    ++(layer.attention == model::AttentionKind::kKda ? n.kda : n.sparse);
    ++(layer.mlp == model::MlpKind::kDense ? n.dense : n.moe);
  }
  return n;
}

class Report {
 public:
  explicit Report(const model::Checkpoint& checkpoint)
      : checkpoint_(checkpoint), config_(checkpoint.config()), layers_(count_layers(config_)),
        sizes_(model::measure_weights(model::stored_tensors(checkpoint), config_)), cache_(model::cache_sizes(config_)) {}

  void print_text() const {
    const model::Config& c = config_;
    fmt::print("{}\n", checkpoint_.dir().string());
    fmt::print("  files: {}, {}; {} text tensors, {} vision tensors skipped\n", checkpoint_.shard_count(), gib(checkpoint_.file_bytes()),
               checkpoint_.tensors().size(), checkpoint_.skipped_vision_tensors());
    fmt::print("\narchitecture glm5_next\n");
    fmt::print("  vocabulary {}, hidden size {}, {} streams, at most {} positions\n", c.vocab_size, c.hidden_size, c.streams,
               c.max_position_embeddings);
    fmt::print("  {} layers: {} KDA and {} sparse attention; {} dense MLP and {} MoE; {} MTP\n", c.layer_count(), layers_.kda,
               layers_.sparse, layers_.dense, layers_.moe, c.mtp_layers);
    fmt::print("  KDA: {} heads of {}\n", c.kda_heads, c.kda_head_dim);
    fmt::print("  sparse: {} heads, query rank {}, latent rank {}, key {}, value {}\n", c.heads, c.q_lora_rank, c.kv_lora_rank,
               c.qk_head_dim, c.v_head_dim);
    fmt::print("  indexer: {} heads of {}, best {} tokens in pools of {}\n", c.index_heads, c.index_head_dim, c.index_topk, c.index_kpool);
    fmt::print("  MLP {}; experts {} of {}, {} chosen, {} shared\n", c.intermediate_size, c.experts, c.moe_intermediate_size,
               c.experts_per_token, c.shared_experts);
    print_weights();
    print_gpus();
    print_caches();
  }

  boost::json::object json() const {
    const model::Config& c = config_;
    boost::json::object root;
    root["directory"] = checkpoint_.dir().string();
    root["files"] = {{"count", checkpoint_.shard_count()},
                     {"bytes", checkpoint_.file_bytes()},
                     {"text_tensors", checkpoint_.tensors().size()},
                     {"vision_tensors_skipped", checkpoint_.skipped_vision_tensors()}};
    root["architecture"] = {{"model_type", "glm5_next"},
                            {"vocab_size", c.vocab_size},
                            {"hidden_size", c.hidden_size},
                            {"streams", c.streams},
                            {"max_position_embeddings", c.max_position_embeddings},
                            {"layers", c.layer_count()},
                            {"kda_layers", layers_.kda},
                            {"sparse_layers", layers_.sparse},
                            {"dense_layers", layers_.dense},
                            {"moe_layers", layers_.moe},
                            {"mtp_layers", c.mtp_layers},
                            {"kda_heads", c.kda_heads},
                            {"kda_head_dim", c.kda_head_dim},
                            {"heads", c.heads},
                            {"q_lora_rank", c.q_lora_rank},
                            {"kv_lora_rank", c.kv_lora_rank},
                            {"qk_head_dim", c.qk_head_dim},
                            {"v_head_dim", c.v_head_dim},
                            {"index_heads", c.index_heads},
                            {"index_head_dim", c.index_head_dim},
                            {"index_topk", c.index_topk},
                            {"index_kpool", c.index_kpool},
                            {"intermediate_size", c.intermediate_size},
                            {"moe_intermediate_size", c.moe_intermediate_size},
                            {"experts", c.experts},
                            {"experts_per_token", c.experts_per_token},
                            {"shared_experts", c.shared_experts}};
    root["weights"] = weights_json();
    root["gpus"] = gpus_json();
    root["cache"] = cache_json();
    return root;
  }

 private:
  template <class Visit>
  void for_each_part(Visit visit) const {
    for (size_t i = 0; i < model::kPartCount; ++i)
      if (sizes_.parts[i].tensors > 0) visit(model::part_name(static_cast<model::Part>(i)), sizes_.parts[i]);
    if (config_.mtp_layers > 0) {
      visit("main model", sizes_.main_model());
      visit("MTP layer", sizes_.mtp_layer());
    }
    visit("total", sizes_.total());
  }

  static int64_t of(const model::PartSize& size, DType type) { return size.bytes_by_dtype[static_cast<size_t>(type)]; }

  void print_weights() const {
    fmt::print("\nweights\n  {:<20}{:>9}{:>18}{:>14}{:>14}{:>14}{:>14}\n", "", "tensors", "parameters", "bytes", "FP8", "BF16", "F32");
    for_each_part([](std::string_view name, const model::PartSize& s) {
      fmt::print("  {:<20}{:>9}{:>18}{:>14}{:>14}{:>14}{:>14}\n", name, s.tensors, s.parameters, gib(s.bytes()), gib(of(s, DType::kF8E4M3)),
                 gib(of(s, DType::kBF16)), gib(of(s, DType::kF32)));
    });
    fmt::print("  one token uses {} parameters of the main model\n", sizes_.active_parameters);
  }

  void print_gpus() const {
    fmt::print("\nweights per GPU: {}\n", kLayoutNote);
    fmt::print("  {:>4}{:>10}{:>14}{:>14}{:>14}{:>14}\n", "GPUs", "experts", "on every GPU", "experts", "together", "with split");
    for (const int gpus : kLayouts) {
      const model::GpuShare s = model::gpu_share(sizes_, config_, gpus);
      fmt::print("  {:>4}{:>10}{:>14}{:>14}{:>14}{:>14}\n", gpus, s.experts, gib(s.replicated_bytes), gib(s.expert_bytes), gib(s.bytes()),
                 gib(s.bytes_with_split()));
    }
  }

  void print_caches() const {
    const model::CacheSizes& c = cache_;
    const auto pool = static_cast<double>(config_.index_kpool);
    const auto row = [&](const char* what, int64_t main, int64_t mtp) {
      fmt::print("  {:<40}{:>14} B", what, main);
      fmt::print("{}\n", mtp > 0 ? fmt::format("  + {} B MTP", mtp) : "");
    };
    const auto index_row = [&](const char* what, int64_t main, int64_t mtp) {
      fmt::print("  {:<40}{:>14.6g} B", what, static_cast<double>(main) / pool);
      fmt::print("{}\n", mtp > 0 ? fmt::format("  + {:.6g} B MTP", static_cast<double>(mtp) / pool) : "");
    };
    fmt::print("\ncache per token, without alignment\n");
    row("latent rows, BF16", c.latent_bf16, c.latent_bf16_mtp);
    row("latent rows, FP8 and scales", c.latent_fp8, c.latent_fp8_mtp);
    index_row("pooled index keys, BF16", c.index_bf16, c.index_bf16_mtp);
    index_row("pooled index keys, FP8 and scale", c.index_fp8, c.index_fp8_mtp);
    fmt::print("\ncache per request\n");
    row("KDA states, F32", c.state_f32, 0);
    row("KDA states, BF16", c.state_bf16, 0);
    row("convolution windows, BF16", c.window_bf16, 0);
    row("tails of the open pool, BF16", c.tail_bf16, c.tail_bf16_mtp);
  }

  boost::json::object weights_json() const {
    boost::json::object parts;
    for_each_part([&](std::string_view name, const model::PartSize& s) {
      boost::json::object by_dtype;
      for (size_t t = 0; t < s.bytes_by_dtype.size(); ++t)
        if (s.bytes_by_dtype[t] > 0) by_dtype[dtype_name(static_cast<DType>(t))] = s.bytes_by_dtype[t];
      parts[name] = {
          {"tensors", s.tensors}, {"parameters", s.parameters}, {"scales", s.scales}, {"bytes", s.bytes()}, {"bytes_by_dtype", by_dtype}};
    });
    return {{"parts", parts}, {"active_parameters", sizes_.active_parameters}};
  }

  boost::json::object gpus_json() const {
    boost::json::array layouts;
    for (const int gpus : kLayouts) {
      const model::GpuShare s = model::gpu_share(sizes_, config_, gpus);
      layouts.push_back({{"gpus", gpus},
                         {"experts_per_layer", s.experts},
                         {"replicated_bytes", s.replicated_bytes},
                         {"expert_bytes", s.expert_bytes},
                         {"bytes", s.bytes()},
                         {"bytes_with_split", s.bytes_with_split()}});
    }
    return {{"assumption", kLayoutNote}, {"layouts", layouts}};
  }

  boost::json::object cache_json() const {
    const model::CacheSizes& c = cache_;
    const auto both = [](int64_t main, int64_t mtp) { return boost::json::object{{"main", main}, {"mtp", mtp}}; };
    return {{"per_token", {{"latent_bf16", both(c.latent_bf16, c.latent_bf16_mtp)}, {"latent_fp8", both(c.latent_fp8, c.latent_fp8_mtp)}}},
            {"per_pool",
             {{"tokens", config_.index_kpool},
              {"index_bf16", both(c.index_bf16, c.index_bf16_mtp)},
              {"index_fp8", both(c.index_fp8, c.index_fp8_mtp)}}},
            {"per_request",
             {{"state_f32", c.state_f32},
              {"state_bf16", c.state_bf16},
              {"window_bf16", c.window_bf16},
              {"tail_bf16", both(c.tail_bf16, c.tail_bf16_mtp)}}}};
  }

  const model::Checkpoint& checkpoint_;
  const model::Config& config_;
  LayerCounts layers_;
  model::WeightSizes sizes_;
  model::CacheSizes cache_;
};

Status inspect(const std::string& dir, bool json) {
  if (model::is_dflash2_folder(dir)) return inspect_drafter(dir, json);
  BATON_ASSIGN(const model::Checkpoint checkpoint, model::Checkpoint::open(dir));
  const Report report(checkpoint);
  if (json)
    fmt::print("{}", model::pretty_json(report.json()));
  else
    report.print_text();
  return {};
}

}  // namespace

void add_inspect(CLI::App& app, int& exit_code) {
  struct Arguments {
    std::string dir;
    bool json = false;
  };
  auto a = std::make_shared<Arguments>();
  CLI::App* c = app.add_subcommand("inspect", "Check a checkpoint and show what it holds and needs");
  c->add_option("DIR", a->dir, "Folder of a checkpoint or of a drafter")->required();
  c->add_flag("--json", a->json, "Print JSON");
  c->callback([a, &exit_code] { exit_code = finish(inspect(a->dir, a->json)); });
}

}  // namespace baton::app
