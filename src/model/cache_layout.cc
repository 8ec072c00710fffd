#include "model/cache_layout.h"

#include "ops/batch.h"
#include "ops/weight.h"
#include "tensor/buffer.h"

namespace baton::model {
namespace {

constexpr int64_t kPartAlignment = 64;
constexpr int64_t kObjectAlignment = 256;

using Kind = CacheRange::Kind;

class Offsets {
 public:
  explicit Offsets(std::vector<CacheRange>& ranges) : ranges_(ranges) {}

  int64_t take(Kind kind, int64_t bytes) {
    const int64_t begin = align_up(next_, kPartAlignment);
    next_ = begin + bytes;
    if (bytes > 0) ranges_.push_back({kind, begin, bytes});
    return begin;
  }
  int64_t total() const { return align_up(next_, kObjectAlignment); }

 private:
  std::vector<CacheRange>& ranges_;
  int64_t next_ = 0;
};

int64_t latent_row_bytes(int64_t dim, DType dtype) {
  const int64_t scales = dtype == DType::kF8E4M3 ? (dim + ops::kScaleBlock - 1) / ops::kScaleBlock : 0;
  return dim * dtype_bytes(dtype) + scales * 4;
}

}  // namespace

CacheLayout plan_cache(const Config& config, const CacheTypes& types, const DrafterNeeds& drafter) {
  CacheLayout layout;
  int64_t sparse = 0;
  for (const LayerKind& layer : config.layers) sparse += layer.attention == AttentionKind::kSparse ? 1 : 0;
  const int64_t kda = config.layer_count() - sparse;
  if (types.mtp) sparse += config.mtp_layers;
  const int64_t pool = config.index_kpool;

  Offsets page(layout.ranges);
  Offsets slot(layout.ranges);
  for (int64_t i = 0; i < sparse; ++i) {
    const int64_t row_bytes = latent_row_bytes(config.kv_lora_rank, types.latent);
    layout.latent.push_back({config.kv_lora_rank, page.take(Kind::kPage, ops::kPageTokens * row_bytes), row_bytes, types.latent});
    const int64_t pooled_rows = ops::kPageTokens / pool;
    const int64_t scale_bytes = types.index == DType::kF8E4M3 ? 4 : 0;
    ops::IndexerLayout index;
    index.dim = config.index_head_dim;
    index.pool = static_cast<int32_t>(pool);
    index.page_offset = page.take(Kind::kPage, pooled_rows * (config.index_head_dim * dtype_bytes(types.index) + scale_bytes));
    index.ring_tokens = static_cast<int32_t>(align_up(pool + types.verify_rows, pool));
    index.ring_offset = slot.take(Kind::kTail, index.ring_tokens * 2 * index.dim * dtype_bytes(types.activation));
    index.dtype = types.index;
    index.ring_dtype = types.activation;
    layout.index.push_back(index);
  }
  const int64_t width = config.kda_width();
  const int64_t element = dtype_bytes(types.activation);
  for (int64_t i = 0; i < kda; ++i) {
    ops::KdaSlotLayout k;
    k.state_offset = slot.take(Kind::kState, width * config.kda_head_dim * dtype_bytes(types.state));
    k.window_offset = slot.take(Kind::kState, 3 * 3 * width * element);
    k.ring_rows = types.verify_rows;
    k.state_dtype = types.state;
    k.activation_dtype = types.activation;
    layout.kda.push_back(k);
  }
  layout.hidden_offset = slot.take(Kind::kState, config.hidden_size * element);
  layout.drafter_page_offset = page.take(Kind::kPage, drafter.page_bytes);
  layout.drafter_window_offset = slot.take(Kind::kState, drafter.window_bytes);
  layout.drafter_slot_offset = slot.take(Kind::kCycle, drafter.slot_bytes);
  layout.fold_count_offset = slot.take(Kind::kCycle, 4);
  const int64_t before_rings = slot.total();
  for (ops::KdaSlotLayout& k : layout.kda) k.ring_offset = slot.take(Kind::kCycle, k.ring_rows * (4 * width + config.kda_heads) * element);
  layout.page_bytes = page.total();
  layout.slot_bytes = slot.total();
  layout.ring_bytes = layout.slot_bytes - before_rings;
  return layout;
}

}  // namespace baton::model
