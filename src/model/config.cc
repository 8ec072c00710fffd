#include "model/config.h"

#include <algorithm>
#include <boost/json/array.hpp>

#include "base/file.h"
#include "model/json_fields.h"
#include "ops/mhc.h"
#include "ops/moe.h"

namespace baton::model {
namespace {

constexpr int64_t kMaxFileBytes = int64_t{8} << 20;
constexpr int64_t kMaxSize = (int64_t{1} << 31) - 1;  // kernels index rows and columns with 32 bits
// With these two, every product of sizes that the program forms fits 63 bits, bytes of the whole checkpoint included.
constexpr int64_t kMaxElements = int64_t{1} << 38;  // of one tensor, or of the state of one layer
constexpr int64_t kMaxTensors = int64_t{1} << 22;

// Entry i of the per-layer list `key`, as index into `names`; reports a wrong length and unknown names.
std::vector<int> layer_list(const JsonFields& text, std::string_view key, int64_t layers, std::initializer_list<std::string_view> names) {
  const std::string wanted = fmt::format("a list of num_hidden_layers entries, each {}", fmt::join(names, " or "));
  const boost::json::value* v = text.find(key);
  if (v == nullptr) {
    text.missing(key, wanted);
    return {};
  }
  const boost::json::array* list = v->if_array();
  if (list == nullptr) {
    text.wrong(key, *v, wanted);
    return {};
  }
  if (static_cast<int64_t>(list->size()) != layers) {
    text.inconsistent(fmt::format("{} has {} entries, num_hidden_layers is {}", key, list->size(), layers));
    return {};
  }
  std::vector<int> out;
  for (size_t i = 0; i < list->size(); ++i) {
    const boost::json::value& entry = (*list)[i];
    const auto* found = names.end();
    if (entry.is_string()) found = std::find(names.begin(), names.end(), std::string_view(entry.get_string()));
    if (found == names.end()) {
      text.wrong(fmt::format("{}[{}]", key, i), entry, fmt::format("{}", fmt::join(names, " or ")));
      return {};
    }
    out.push_back(static_cast<int>(found - names.begin()));
  }
  return out;
}

void read_layers(const JsonFields& text, Config& c) {
  const int64_t layers = text.integer("num_hidden_layers", 1, 100'000);
  const std::vector<int> attention = layer_list(text, "layer_types", layers, {"linear_attention", "deepseek_sparse_attention"});
  std::vector<int> mlp;
  if (!text.has("mlp_layer_types") && text.has("first_k_dense_replace")) {
    const int64_t dense = text.integer("first_k_dense_replace", 0, layers);
    for (int64_t l = 0; l < layers; ++l) mlp.push_back(l < dense ? 0 : 1);
  } else {
    mlp = layer_list(text, "mlp_layer_types", layers, {"dense", "sparse"});
  }
  for (size_t l = 0; l < std::min(attention.size(), mlp.size()); ++l)
    c.layers.push_back({attention[l] == 0 ? AttentionKind::kKda : AttentionKind::kSparse, mlp[l] == 0 ? MlpKind::kDense : MlpKind::kMoe});
  c.mtp_layers = text.integer("num_nextn_predict_layers", 0, 1, 0);
  if (const boost::json::value* v = text.find("indexer_types")) {
    bool all_full = v->is_array();
    if (all_full)
      for (const boost::json::value& entry : v->get_array()) all_full = all_full && entry.is_string() && entry.get_string() == "full";
    if (!all_full) text.wrong("indexer_types", *v, "only a list of \"full\"");
  }
}

void read_kda(const JsonFields& text, Config& c) {
  const boost::json::value* v = text.find("linear_attn_config");
  if (v == nullptr) return text.missing("linear_attn_config", "an object");
  if (!v->is_object()) return text.wrong("linear_attn_config", *v, "an object");
  const JsonFields kda(v->get_object(), text.path() + "linear_attn_config.", text.problems());
  c.kda_heads = kda.integer("num_heads", 1, kMaxSize);
  c.kda_head_dim = kda.integer("head_dim", 1, kMaxSize);
  c.conv_kernel = kda.integer("short_conv_kernel_size", 4, 4);
  c.gate_lower_bound = kda.number("gate_lower_bound", -1e4, -1e-6, -5.0);
  kda.require_flag("safe_gate", true);
}

void read_sparse(const JsonFields& text, Config& c) {
  c.heads = text.integer("num_attention_heads", 1, kMaxSize);
  c.q_lora_rank = text.integer("q_lora_rank", 1, kMaxSize);
  c.kv_lora_rank = text.integer("kv_lora_rank", 1, kMaxSize);
  c.qk_head_dim = text.integer("qk_nope_head_dim", 1, kMaxSize);
  c.v_head_dim = text.integer("v_head_dim", 1, kMaxSize);
  c.index_heads = text.integer("index_n_heads", 1, kMaxSize);
  c.index_head_dim = text.integer("index_head_dim", 1, kMaxSize);
  c.index_topk = text.integer("index_topk", 1, kMaxSize);
  c.index_kpool = text.integer("index_kpool", 1, 64);
  c.index_share_for_mtp = text.flag("index_share_for_mtp_iteration", false);
  if (64 % c.index_kpool != 0) text.inconsistent(fmt::format("index_kpool is {}: it must divide 64", c.index_kpool));
  if (c.index_topk % c.index_kpool != 0)
    text.inconsistent(fmt::format("index_topk {} is no multiple of index_kpool {}", c.index_topk, c.index_kpool));
  text.require_integer("qk_rope_head_dim", 0);
  if (text.has("qk_head_dim")) text.integer("qk_head_dim", c.qk_head_dim, c.qk_head_dim);
  if (text.has("num_key_value_heads")) text.integer("num_key_value_heads", c.heads, c.heads);
  text.require_flag("mla_use_nope", true);
  text.require_flag("index_kpool_compress", true);
  text.require_flag("index_kpool_always_select_tail", true);
  text.require_flag("attention_bias", false);
}

void read_feed_forward(const JsonFields& text, Config& c) {
  c.intermediate_size = text.integer("intermediate_size", 1, kMaxSize);
  c.moe_intermediate_size = text.integer("moe_intermediate_size", 1, kMaxSize);
  c.experts = text.integer("n_routed_experts", 1, 65'536);
  c.experts_per_token = text.integer("num_experts_per_tok", 1, ops::kMaxExpertsPerToken);
  c.shared_experts = text.integer("n_shared_experts", 0, 65'536, 0);
  c.swiglu_limit = text.number("swiglu_limit", 1e-6, 1e30);
  c.routed_scaling_factor = text.number("routed_scaling_factor", -1e6, 1e6);
  c.norm_topk_prob = text.flag("norm_topk_prob", true);
  if (c.experts_per_token > c.experts)
    text.inconsistent(fmt::format("num_experts_per_tok {} exceeds n_routed_experts {}", c.experts_per_token, c.experts));
  text.require_text("hidden_act", {"silu"});
  text.require_text("scoring_func", {"sigmoid"});
  text.require_text("topk_method", {"noaux_tc"});
  text.require_text("moe_router_dtype", {"float32", "fp32"});
  text.require_integer("n_group", 1);
  text.require_integer("topk_group", 1);
}

// Sizes that are each possible may still have impossible products.
void check_products(const JsonFields& text, const Config& c) {
  struct Product {
    std::string_view what;
    int64_t a, b;
    int64_t limit;
  };
  const auto wide = [](int64_t a, int64_t b) { return std::min(a, kMaxSize) * std::min(b, kMaxSize); };  // < 2^62
  const int64_t kda = wide(c.kda_heads, c.kda_head_dim);
  const int64_t query = wide(c.heads, c.qk_head_dim);
  const int64_t value = wide(c.heads, c.v_head_dim);
  const int64_t mix = (2 + c.streams) * c.streams;
  const Product products[] = {
      {"linear_attn_config.num_heads x head_dim", c.kda_heads, c.kda_head_dim, kMaxSize / 4},
      {"the KDA state", kda, c.kda_head_dim, kMaxElements},
      {"a KDA projection", kda, c.hidden_size, kMaxElements},
      {"num_attention_heads x (qk_nope_head_dim + v_head_dim)", c.heads, c.qk_head_dim + c.v_head_dim, kMaxSize},
      {"q_b_proj", query, c.q_lora_rank, kMaxElements},
      {"kv_b_proj", query + value, c.kv_lora_rank, kMaxElements},
      {"o_proj", value, c.hidden_size, kMaxElements},
      {"q_a_proj", c.q_lora_rank, c.hidden_size, kMaxElements},
      {"kv_a_proj", c.kv_lora_rank, c.hidden_size, kMaxElements},
      {"index_n_heads x index_head_dim", c.index_heads, c.index_head_dim, kMaxSize},
      {"indexer.wq_b", wide(c.index_heads, c.index_head_dim), c.q_lora_rank, kMaxElements},
      {"indexer.wk", c.index_head_dim, c.hidden_size, kMaxElements},
      {"indexer.weights_proj", c.index_heads, c.hidden_size, kMaxElements},
      {"hc_mult x hidden_size", c.streams, c.hidden_size, kMaxSize},
      {"the mHC mapping", wide(mix, c.streams), c.hidden_size, kMaxElements},
      {"the embedding", c.vocab_size, c.hidden_size, kMaxElements},
      {"eh_proj", 2 * c.hidden_size, c.hidden_size, kMaxElements},
      {"the dense MLP", c.intermediate_size, c.hidden_size, kMaxElements},
      {"the router", c.experts, c.hidden_size, kMaxElements},
      {"an expert", c.moe_intermediate_size, c.hidden_size, kMaxElements},
      {"n_shared_experts x moe_intermediate_size", c.shared_experts, c.moe_intermediate_size, kMaxSize},
      {"the shared experts", wide(c.shared_experts, c.moe_intermediate_size), c.hidden_size, kMaxElements},
      {"tensors in all", c.layer_count() + c.mtp_layers, 3 * c.experts + 64, kMaxTensors},
  };
  for (const Product& p : products) {
    int64_t product = 0;
    if (__builtin_mul_overflow(p.a, p.b, &product) || product > p.limit)
      text.inconsistent(fmt::format("{}: {} x {} exceeds {}", p.what, p.a, p.b, p.limit));
  }
}

void check_quantization(const JsonFields& parent) {
  const boost::json::value* v = parent.find("quantization_config");
  if (v == nullptr) return;
  if (!v->is_object()) return parent.wrong("quantization_config", *v, "an object");
  const JsonFields q(v->get_object(), parent.path() + "quantization_config.", parent.problems());
  if (!q.has("quant_method")) q.missing("quant_method", "only fp8");
  q.require_text("quant_method", {"fp8"});
  q.require_text("fmt", {"e4m3"});
  q.require_text("activation_scheme", {"dynamic"});
  if (const boost::json::value* block = q.find("weight_block_size"))
    if (*block != boost::json::value(boost::json::array{128, 128})) q.wrong("weight_block_size", *block, "only [128, 128]");
}

std::vector<int32_t> token_ids(const JsonFields& fields, std::string_view key, int64_t vocab_size) {
  const boost::json::value* v = fields.find(key);
  if (v == nullptr) return {};
  const std::string wanted = fmt::format("a token id below {}, or a list of them", vocab_size);
  std::vector<int32_t> ids;
  const auto take = [&](const boost::json::value& id) {
    const int64_t* i = id.if_int64();
    if (i == nullptr || *i < 0 || *i >= vocab_size) return false;
    ids.push_back(static_cast<int32_t>(*i));
    return true;
  };
  bool good = true;
  if (const boost::json::array* list = v->if_array())
    for (const boost::json::value& id : *list) good = good && take(id);
  else
    good = take(*v);
  if (good) return ids;
  fields.wrong(key, *v, wanted);
  return {};
}

Config read_text_config(const JsonFields& text) {
  Config c;
  c.vocab_size = text.integer("vocab_size", 1, kMaxSize);
  c.hidden_size = text.integer("hidden_size", 1, kMaxSize);
  c.max_position_embeddings = text.integer("max_position_embeddings", 1, kMaxSize);
  c.rms_norm_eps = text.number("rms_norm_eps", 1e-30, 1.0);
  c.streams = text.integer("hc_mult", 1, ops::kMaxStreams);
  c.sinkhorn_iterations = text.integer("hc_sinkhorn_iters", 1, 10'000);
  c.hc_eps = text.number("hc_eps", 1e-30, 1.0);
  text.require_flag("mhc", true);
  read_layers(text, c);
  read_kda(text, c);
  read_sparse(text, c);
  read_feed_forward(text, c);
  c.eos_token_ids = token_ids(text, "eos_token_id", c.vocab_size);
  check_products(text, c);
  return c;
}

// The text part of a whole config.json, or the object itself if it is a text config.
const boost::json::object* find_text_config(const JsonFields& root) {
  root.require_text("model_type", {"glm5_next", "glm5_next_text"});
  const boost::json::value* type = root.find("model_type");
  if (type == nullptr) root.missing("model_type", "glm5_next");
  const boost::json::value* nested = root.find("text_config");
  if (nested == nullptr) {
    if (type != nullptr && type->is_string() && type->get_string() == "glm5_next_text") return &root.object();
    if (root.problems().empty()) root.missing("text_config", "an object with the settings of the text model");
    return nullptr;
  }
  if (nested->is_object()) return &nested->get_object();
  root.wrong("text_config", *nested, "an object");
  return nullptr;
}

}  // namespace

Result<Config> parse_config(const std::string& json, const std::string& where) {
  BATON_ASSIGN(const boost::json::object root_object, parse_json_object(json, where));
  Problems problems;
  const std::string heading = fmt::format("{} does not describe a model that can be run", where);
  const JsonFields root(root_object, "", problems);
  const boost::json::object* text_object = find_text_config(root);
  // Another architecture would only produce a long list of missing keys.
  if (text_object == nullptr || !problems.empty()) return problems.error(heading, Error::Kind::kUnsupported);
  const bool nested = text_object != &root_object;
  const JsonFields text(*text_object, nested ? "text_config." : "", problems);
  text.require_text("model_type", {"glm5_next_text", "glm5_next"});
  if (!problems.empty()) return problems.error(heading, Error::Kind::kUnsupported);

  Config config = read_text_config(text);
  config.tie_word_embeddings =
      text.has("tie_word_embeddings") ? text.flag("tie_word_embeddings", false) : root.flag("tie_word_embeddings", false);
  check_quantization(root);
  if (nested) {
    check_quantization(text);
    if (!text.has("eos_token_id")) config.eos_token_ids = token_ids(root, "eos_token_id", config.vocab_size);
  }
  if (!problems.empty()) return problems.error(heading);
  return config;
}

Result<ConfigFile> read_config_file(const std::filesystem::path& dir, int64_t limit_bytes) {
  std::error_code ignored;
  if (!std::filesystem::exists(dir, ignored)) return Error{Error::Kind::kNotFound, fmt::format("there is no folder {}", dir.string())};
  if (std::filesystem::is_regular_file(dir, ignored))
    return Error{Error::Kind::kInvalid, fmt::format("{} is a file: name the folder that holds config.json", dir.string())};
  const std::filesystem::path file = dir / "config.json";
  BATON_ASSIGN(std::string json, read_regular_file(file, limit_bytes));
  return ConfigFile{std::move(json), file.string()};
}

Result<Config> load_config(const std::filesystem::path& dir) {
  BATON_ASSIGN(const ConfigFile file, read_config_file(dir, kMaxFileBytes));
  BATON_ASSIGN(Config config, parse_config(file.json, file.name));

  const std::filesystem::path generation = dir / "generation_config.json";
  const Result<std::string> text = read_regular_file(generation, kMaxFileBytes);
  if (!text.ok()) {
    if (text.error().kind == Error::Kind::kNotFound) return config;
    return text.error();
  }
  BATON_ASSIGN(const boost::json::object object, parse_json_object(*text, generation.string()));
  Problems problems;
  const JsonFields fields(object, "", problems);
  if (fields.has("eos_token_id")) config.eos_token_ids = token_ids(fields, "eos_token_id", config.vocab_size);
  if (!problems.empty()) return problems.error(fmt::format("{} cannot be used", generation.string()));
  return config;
}

}  // namespace baton::model
