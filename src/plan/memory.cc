#include "plan/memory.h"

#include <algorithm>

#include "model/cache_layout.h"
#include "model/memory_plan.h"
#include "model/stored_tensors.h"

namespace baton::plan {
namespace {

constexpr int64_t kPageTokens = 64;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Bytes of the weights that stand on every GPU, and of those that are divided.
struct Weights {
  int64_t everywhere = 0;
  int64_t divided = 0;
};

Weights weights_of(const model::Config& config, Layout layout, Drafter drafter) {
  const model::WeightSizes sizes = model::measure_weights(model::stored_tensors(config, model::WeightFormat::kFp8), config);
  const auto divided = [layout](model::Part part) {
    switch (part) {
      case model::Part::kRoutedExperts:
      case model::Part::kMtpRoutedExperts:
      case model::Part::kSharedExperts:
      case model::Part::kDenseMlp:
      case model::Part::kHead: return true;
      case model::Part::kKda:
      case model::Part::kSparseAttention: return layout == Layout::kTensor;
      default: return false;
    }
  };
  Weights w;
  for (size_t i = 0; i < model::kPartCount; ++i) {
    const auto part = static_cast<model::Part>(i);
    if (drafter != Drafter::kMtp && (part == model::Part::kMtp || part == model::Part::kMtpRoutedExperts)) continue;
    (divided(part) ? w.divided : w.everywhere) += sizes.parts[i].bytes();
  }
  return w;
}

// The sizes of a page and a slot as the engine lays them out.
model::CacheLayout layout_of(const model::Config& config, const CacheChoice& cache) {
  model::Config c = config;
  if (cache.drafter != Drafter::kMtp) c.mtp_layers = 0;  // without it, nobody writes its rows
  return model::plan_cache(
      c, {.activation = DType::kBF16, .state = cache.state, .latent = cache.latent, .index = DType::kF8E4M3, .verify_rows = cache.rows});
}

}  // namespace

int64_t Memory::unused_bytes() const { return total_bytes - fixed_bytes; }

Memory plan_memory(const model::Config& config, const Gpu& gpu, const MemoryQuestion& q) {
  const bool tensor = q.layout == Layout::kTensor;
  const int64_t split = tensor ? q.gpus : 1;  // GPUs that share a request's state
  const model::CacheLayout cache = layout_of(config, q.cache);
  const model::CacheSizes sizes = model::cache_sizes(config);
  const Weights weights = weights_of(config, q.layout, q.cache.drafter);
  const int64_t shared_pages = q.shared_tokens / kPageTokens;
  const int64_t own_pages = ceil_div(q.context_tokens, kPageTokens) - shared_pages;
  const int64_t state = q.cache.state == DType::kBF16 ? sizes.state_bf16 : sizes.state_f32;
  const int64_t slot = cache.slot_bytes - cache.ring_bytes - state;

  Memory m;
  m.total_bytes = gpu.memory_bytes;
  m.fixed = {{"weights on every GPU", weights.everywhere},
             {"weights, this GPU's share", ceil_div(weights.divided, q.gpus)},
             {"workspace, graphs, driver", q.reserve_bytes}};
  if (q.cache.drafter == Drafter::kDFlash2) m.fixed.push_back({"drafter", static_cast<int64_t>(DFlash2::weight_bytes())});
  if (shared_pages > 0) m.fixed.push_back({"shared pages", shared_pages * cache.page_bytes});
  m.per_request = {
      {"pages of its own", own_pages * cache.page_bytes}, {"state", state / split}, {"windows, tails, hidden row", slot / split}};
  if (q.cache.rows > 1) {
    if (q.cache.replay)
      m.per_request.push_back({"replay ring", cache.ring_bytes / split});
    else
      m.per_request.push_back({"state of each row", q.cache.rows * state / split});
  }
  if (q.cache.drafter == Drafter::kDFlash2)
    m.per_request.push_back({"drafter's window", static_cast<int64_t>(DFlash2::window_bytes()) / split});
  for (const Memory::Line& l : m.fixed) m.fixed_bytes += l.bytes;
  for (const Memory::Line& l : m.per_request) m.request_bytes += l.bytes;
  if (m.unused_bytes() > 0) m.running = m.unused_bytes() / m.request_bytes * (tensor ? 1 : q.gpus);
  return m;
}

// Where layers are split, pages stand on every GPU and states are divided; else everything of a request stands on one.
Room room_of(const model::Config& config, const Gpu& gpu, const MemoryQuestion& q, bool drafts) {
  MemoryQuestion one = q;
  one.context_tokens = kPageTokens;
  one.shared_tokens = 0;
  if (!drafts) {
    one.cache.rows = 1;
    one.cache.drafter = Drafter::kNone;
  }
  const Memory m = plan_memory(config, gpu, one);
  Room r;
  r.bytes = m.unused_bytes() * (q.layout == Layout::kTensor ? 1 : q.gpus);
  r.page_bytes = layout_of(config, q.cache).page_bytes;
  r.request_bytes = m.request_bytes - layout_of(config, one.cache).page_bytes;
  for (const Memory::Line& l : m.per_request)
    if (l.name == "state" || l.name == "windows, tails, hidden row") r.snapshot_bytes += l.bytes;
  return r;
}

SplitPools split_pools(int64_t free_bytes, double ratio, int64_t state_bytes, int64_t token_bytes_of_request) {
  const auto states = static_cast<int64_t>(static_cast<double>(free_bytes) * ratio / (1 + ratio));
  return {.states = states / state_bytes, .requests = (free_bytes - states) / token_bytes_of_request};
}

}  // namespace baton::plan
