#include "model/dflash2_config.h"

#include <algorithm>
#include <boost/json/array.hpp>

#include "base/file.h"
#include "model/json_fields.h"

namespace baton::model {
namespace {

constexpr std::string_view kArchitecture = "DFlash2DraftModel";
constexpr int64_t kMaxFileBytes = int64_t{1} << 20;
constexpr int64_t kMaxSize = int64_t{1} << 24;      // products of three sizes fit 63 bits several times over ...
constexpr int64_t kMaxElements = int64_t{1} << 38;  // ... and of two are held to this
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxBlock = 16;

bool names_architecture(const JsonFields& root) {
  const boost::json::value* v = root.find("architectures");
  if (v == nullptr || !v->is_array()) return false;
  const boost::json::array& list = v->get_array();
  return std::any_of(list.begin(), list.end(),
                     [](const boost::json::value& a) { return a.is_string() && a.get_string() == kArchitecture; });
}

// An object of the settings, or an empty one.
const boost::json::object& nested(const JsonFields& root, std::string_view key) {
  static const boost::json::object kEmpty;
  const boost::json::value* v = root.find(key);
  if (v == nullptr) return kEmpty;
  if (v->is_object()) return v->get_object();
  root.wrong(key, *v, "an object");
  return kEmpty;
}

std::vector<int64_t> target_layers(const JsonFields& fields) {
  constexpr std::string_view kWanted = "a list of layer numbers, from 0 and ascending";
  const boost::json::value* v = fields.find("target_layer_ids");
  if (v == nullptr) {
    fields.missing("target_layer_ids", kWanted);
    return {};
  }
  std::vector<int64_t> layers;
  bool good = v->is_array() && !v->get_array().empty() && v->get_array().size() <= kMaxLayers;
  for (size_t i = 0; good && i < v->get_array().size(); ++i) {
    const int64_t* layer = v->get_array()[i].if_int64();
    good = layer != nullptr && *layer > (layers.empty() ? -1 : layers.back()) && *layer < kMaxSize;
    if (good) layers.push_back(*layer);
  }
  if (good) return layers;
  fields.wrong("target_layer_ids", *v, kWanted);
  return {};
}

void check_layer_types(const JsonFields& root) {
  const boost::json::value* v = root.find("layer_types");
  if (v == nullptr) return;
  bool good = v->is_array();
  if (good)
    for (const boost::json::value& t : v->get_array()) good = good && t.is_string() && t.get_string() == "sliding_attention";
  if (!good) root.wrong("layer_types", *v, "only a list of \"sliding_attention\"");
}

void check_products(const JsonFields& root, const DFlash2Config& c) {
  struct Product {
    std::string_view what;
    int64_t a, b;
  };
  const Product products[] = {{"num_attention_heads x head_dim", c.heads, c.head_dim},
                              {"q_proj", c.heads * c.head_dim, c.hidden_size},
                              {"the MLP", c.intermediate_size, c.hidden_size},
                              {"fc", c.feature_width(), c.hidden_size},
                              {"the window of a layer", 2 * c.kv_heads * c.head_dim, c.window},
                              {"a codebook", c.vocab_size, c.selector_rank}};
  for (const Product& p : products) {
    int64_t product = 0;
    if (__builtin_mul_overflow(p.a, p.b, &product) || product > kMaxElements)
      root.inconsistent(fmt::format("{}: {} x {} exceeds {}", p.what, p.a, p.b, kMaxElements));
  }
  const auto divides = [&](std::string_view what, int64_t whole, std::string_view by, int64_t part) {
    if (whole % part != 0) root.inconsistent(fmt::format("{} {} is no multiple of {} {}", what, whole, by, part));
  };
  divides("num_attention_heads", c.heads, "num_key_value_heads", c.kv_heads);
  divides("hidden_size", c.hidden_size, "conv_group_size", c.conv_group_size);
  divides("head_dim", c.head_dim, "the halves of a rotary position,", 2);
}

DFlash2Config read_config(const JsonFields& root) {
  DFlash2Config c;
  c.vocab_size = root.integer("vocab_size", 1, kMaxSize);
  c.hidden_size = root.integer("hidden_size", 1, kMaxSize);
  c.layers = root.integer("num_hidden_layers", 1, kMaxLayers);
  c.heads = root.integer("num_attention_heads", 1, 65'536);
  c.kv_heads = root.integer("num_key_value_heads", 1, 65'536);
  c.head_dim = root.integer("head_dim", 2, 65'536);
  c.intermediate_size = root.integer("intermediate_size", 1, kMaxSize);
  c.window = root.integer("sliding_window", 1, kMaxSize);
  c.rms_norm_eps = root.number("rms_norm_eps", 1e-30, 1.0);
  const JsonFields rope(nested(root, "rope_parameters"), "rope_parameters.", root.problems());
  rope.require_text("rope_type", {"default"});
  c.rope_theta = (rope.has("rope_theta") ? rope : root).number("rope_theta", 1.0, 1e12);
  if (const boost::json::value* scaling = root.find("rope_scaling")) root.wrong("rope_scaling", *scaling, "only null");
  root.require_text("hidden_act", {"silu"});
  root.require_flag("attention_bias", false);
  root.require_flag("is_causal", false);
  check_layer_types(root);

  const JsonFields inner(nested(root, "dflash_config"), "dflash_config.", root.problems());
  const auto at = [&](std::string_view key) -> const JsonFields& { return inner.has(key) ? inner : root; };
  c.block_size = at("block_size").integer("block_size", 2, kMaxBlock);
  c.target_layers = target_layers(at("target_layer_ids"));
  c.mask_token_id = static_cast<int32_t>(at("mask_token_id").integer("mask_token_id", 0, c.vocab_size - 1));
  at("conv_kernel_size").require_integer("conv_kernel_size", 2);
  c.conv_group_size = at("conv_group_size").integer("conv_group_size", 1, kMaxSize);
  c.selector_rank = at("selector_rank").integer("selector_rank", 1, 65'536);
  c.selector_top_k = at("selector_top_k").integer("selector_top_k", 1, std::min<int64_t>(c.vocab_size, 1024));
  check_products(root, c);
  return c;
}

}  // namespace

bool is_dflash2_folder(const std::filesystem::path& dir) {
  const std::filesystem::path file = dir / "config.json";
  const Result<std::string> json = read_regular_file(file, kMaxFileBytes);
  if (!json.ok()) return false;
  const Result<boost::json::object> object = parse_json_object(*json, file.string());
  Problems ignored;
  return object.ok() && names_architecture(JsonFields(*object, "", ignored));
}

Result<DFlash2Config> parse_dflash2_config(const std::string& json, const std::string& where) {
  BATON_ASSIGN(const boost::json::object object, parse_json_object(json, where));
  Problems problems;
  const std::string heading = fmt::format("{} does not describe a drafter that can be run", where);
  const JsonFields root(object, "", problems);
  // Another architecture would only produce a long list of missing keys.
  if (!names_architecture(root)) {
    const std::string wanted = fmt::format("a list with \"{}\"", kArchitecture);
    if (const boost::json::value* v = root.find("architectures"))
      root.wrong("architectures", *v, wanted);
    else
      root.missing("architectures", wanted);
    return problems.error(heading, Error::Kind::kUnsupported);
  }
  DFlash2Config config = read_config(root);
  if (!problems.empty()) return problems.error(heading);
  return config;
}

Result<DFlash2Config> load_dflash2_config(const std::filesystem::path& dir) {
  BATON_ASSIGN(const ConfigFile file, read_config_file(dir, kMaxFileBytes));
  return parse_dflash2_config(file.json, file.name);
}

Status check_dflash2_target(const DFlash2Config& drafter, const Config& target, const std::string& where) {
  Problems problems;
  const auto equal = [&](std::string_view key, int64_t own, int64_t wanted) {
    if (own != wanted) problems.add("differences", fmt::format("{} is {}, the target's is {}", key, own, wanted));
  };
  // Embedding and head are the target's.
  equal("hidden_size", drafter.hidden_size, target.hidden_size);
  equal("vocab_size", drafter.vocab_size, target.vocab_size);
  if (drafter.target_layers.back() >= target.layer_count())
    problems.add("differences", fmt::format("target_layer_ids names layer {}, the target has {} (0 to {})", drafter.target_layers.back(),
                                            target.layer_count(), target.layer_count() - 1));
  if (problems.empty()) return {};
  return problems.error(fmt::format("{} drafts for another target", where));
}

}  // namespace baton::model
