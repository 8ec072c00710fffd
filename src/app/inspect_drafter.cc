#include "app/inspect_drafter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "model/dflash2_checkpoint.h"
#include "model/json_text.h"

namespace baton::app {
namespace {

struct Sizes {
  int64_t parameters = 0;
  int64_t bytes = 0;
};

Sizes measure(const model::DFlash2Checkpoint& checkpoint) {
  Sizes s;
  for (const model::TensorEntry& t : checkpoint.set().tensors()) {
    s.parameters += t.elements();
    s.bytes += t.bytes;
  }
  return s;
}

// Of a request: keys and values of the window, all layers, in 16-bit elements.
int64_t window_bytes_bf16(const model::DFlash2Config& c) { return c.layers * c.window * 2 * c.kv_heads * c.head_dim * 2; }

void print_text(const model::DFlash2Checkpoint& checkpoint) {
  const model::DFlash2Config& c = checkpoint.config();
  const Sizes sizes = measure(checkpoint);
  fmt::print("{}\n", checkpoint.set().dir().string());
  fmt::print("  files: {}, {}; {} tensors\n", checkpoint.set().file_count(), readable_bytes(checkpoint.set().file_bytes()),
             checkpoint.set().tensors().size());
  fmt::print("\ndrafter dflash2\n");
  fmt::print("  for a target of vocabulary {}, hidden size {}; embedding and head are the target's\n", c.vocab_size, c.hidden_size);
  fmt::print("  block of {}: {} drafts a pass; mask token {}\n", c.block_size, c.drafts(), c.mask_token_id);
  fmt::print("  features: the target's streams after layers {}\n", fmt::join(c.target_layers, ", "));
  fmt::print("  {} layers: {} heads over {} key heads of {}, MLP {}\n", c.layers, c.heads, c.kv_heads, c.head_dim, c.intermediate_size);
  fmt::print("  convolution: 2 taps, {} groups of {} channels\n", c.conv_groups(), c.conv_group_size);
  fmt::print("  selector: rank {}, best {} tokens of a position\n", c.selector_rank, c.selector_top_k);
  fmt::print("\nweights: {} parameters, {}\n", sizes.parameters, readable_bytes(sizes.bytes));
  fmt::print("draft cache per request: {} tokens, {} B in BF16, {} B in F32\n", c.window, window_bytes_bf16(c), 2 * window_bytes_bf16(c));
}

boost::json::object as_json(const model::DFlash2Checkpoint& checkpoint) {
  const model::DFlash2Config& c = checkpoint.config();
  const Sizes sizes = measure(checkpoint);
  return {{"directory", checkpoint.set().dir().string()},
          {"files", {{"count", checkpoint.set().file_count()}, {"bytes", checkpoint.set().file_bytes()}}},
          {"architecture",
           {{"model_type", "dflash2"},
            {"vocab_size", c.vocab_size},
            {"hidden_size", c.hidden_size},
            {"block_size", c.block_size},
            {"mask_token_id", c.mask_token_id},
            {"target_layer_ids", boost::json::array(c.target_layers.begin(), c.target_layers.end())},
            {"layers", c.layers},
            {"heads", c.heads},
            {"kv_heads", c.kv_heads},
            {"head_dim", c.head_dim},
            {"intermediate_size", c.intermediate_size},
            {"sliding_window", c.window},
            {"conv_group_size", c.conv_group_size},
            {"selector_rank", c.selector_rank},
            {"selector_top_k", c.selector_top_k}}},
          {"weights", {{"tensors", checkpoint.set().tensors().size()}, {"parameters", sizes.parameters}, {"bytes", sizes.bytes}}},
          {"cache_per_request", {{"window_bf16", window_bytes_bf16(c)}, {"window_f32", 2 * window_bytes_bf16(c)}}}};
}

}  // namespace

std::string readable_bytes(int64_t bytes) {
  if (bytes >= int64_t{1} << 30) return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / 0x1p30);
  if (bytes >= int64_t{1} << 20) return fmt::format("{:.2f} MiB", static_cast<double>(bytes) / 0x1p20);
  return fmt::format("{} B", bytes);
}

Status inspect_drafter(const std::string& dir, bool json) {
  BATON_ASSIGN(const model::DFlash2Checkpoint checkpoint, model::DFlash2Checkpoint::open(dir));
  if (json)
    fmt::print("{}", model::pretty_json(as_json(checkpoint)));
  else
    print_text(checkpoint);
  return {};
}

}  // namespace baton::app
