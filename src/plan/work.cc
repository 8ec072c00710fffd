#include "plan/work.h"

#include <algorithm>
#include <cmath>

namespace baton::plan {
namespace {

constexpr double kBf16Bytes = 2, kF32Bytes = 4, kScaleColumns = 128;
constexpr double kChunkRows = 64;  // of the chunked form of KDA

// Products and bytes that decode and prefill count alike.
struct Dimensions {
  explicit Dimensions(const model::Config& config) : c(config) {
    for (const model::LayerKind& layer : c.layers) {
      ++(layer.attention == model::AttentionKind::kKda ? kda : sparse);
      ++(layer.mlp == model::MlpKind::kDense ? dense : moe);
    }
    d = static_cast<double>(c.hidden_size);
    vocabulary = static_cast<double>(c.vocab_size);
    experts = static_cast<double>(c.experts);
    chosen = static_cast<double>(c.experts_per_token);
    middle = static_cast<double>(c.moe_intermediate_size);
    expert = 3 * d * middle;
    shared = expert * static_cast<double>(c.shared_experts);
    dense_mlp = 3 * d * static_cast<double>(c.intermediate_size);
    kda_heads = static_cast<double>(c.kda_heads);
    kda_dim = static_cast<double>(c.kda_head_dim);
    width = static_cast<double>(c.kda_width());
    kda_weights = d * (3 * width + kda_heads + 2 * kda_dim) + 2 * kda_dim * width + width * d;
    heads = static_cast<double>(c.heads);
    rank = static_cast<double>(c.kv_lora_rank);
    const auto query_rank = static_cast<double>(c.q_lora_rank);
    q_up = query_rank * heads * static_cast<double>(c.qk_head_dim);
    o = heads * static_cast<double>(c.v_head_dim) * d;
    down = d * (query_rank + rank);
    kv_up = rank * heads * static_cast<double>(c.qk_head_dim + c.v_head_dim);
    index_heads = static_cast<double>(c.index_heads);
    index_dim = static_cast<double>(c.index_head_dim);
    index_weights = query_rank * index_heads * index_dim + d * index_dim + d * index_heads;
    chosen_tokens = static_cast<double>(c.index_topk);
    pool = static_cast<double>(c.index_kpool);
    streams = static_cast<double>(c.streams);
    mixing = streams * (2 + streams) * streams * d;
  }

  double latent_bytes(bool fp8) const { return fp8 ? rank + kF32Bytes * std::ceil(rank / kScaleColumns) : rank * kBf16Bytes; }
  double index_bytes() const { return index_dim + kF32Bytes; }
  // A row of mHC: streams read and written, the layer's output read, its next input written.
  double stream_bytes() const { return 2 * streams * d * kBf16Bytes + 2 * d * kBf16Bytes; }
  // Experts of a layer that at least one of so many rows has chosen, were they chosen evenly.
  double touched(double rows) const { return experts * (1 - std::pow(1 - chosen / experts, rows)); }
  // A row to the experts and back: FP8 with scales, ids and weights, or BF16; sums come back as BF16.
  double transport_bytes(bool fp8) const { return (fp8 ? d + d / 32 + 8 * chosen : d * kBf16Bytes) + d * kBf16Bytes; }

  const model::Config& c;
  double kda = 0, sparse = 0, dense = 0, moe = 0;
  double d, vocabulary, experts, chosen, middle, expert, shared, dense_mlp, kda_heads, kda_dim, width, kda_weights, heads, rank, q_up, o,
      down, kv_up, index_heads, index_dim, index_weights, chosen_tokens, pool, streams, mixing;
};

void add_drafter(std::vector<Work>& all, const Dimensions& m, const DecodeShape& s) {
  const double rows = s.requests * s.rows, drafts = s.rows - 1;
  if (s.drafter == Drafter::kNone || drafts < 1) return;
  if (s.drafter == Drafter::kDFlash2) {
    const double weights = DFlash2::kParameters - 2 * m.vocabulary * DFlash2::kSelectorRank;
    const double committed = s.accepted * s.requests;
    all.push_back({.part = "drafter blocks",
                   .op = "drafter",
                   .flop = 2 * (rows * (weights - DFlash2::kFeatureParameters) + committed * DFlash2::kFeatureParameters) / s.gpus,
                   .bytes = (kBf16Bytes * weights + s.requests * DFlash2::window_bytes() / kBf16Bytes) / s.gpus,
                   .kernels = 40});
    all.push_back({.part = "drafter head",
                   .op = "head",
                   .flop = 2 * s.requests * drafts * m.d * m.vocabulary / s.gpus,
                   .bytes = kBf16Bytes * m.d * m.vocabulary / s.gpus});
    return;
  }
  // One step is a sparse layer with experts over one row of each request; then all rows of the cycle pass once more.
  const double attention_split = s.layout == Layout::kTensor ? s.gpus : 1;
  const auto pass = [&](const char* part, double repeats, double n) {
    const double own = s.layout == Layout::kTensor ? n : n / s.gpus;
    all.push_back({.part = part,
                   .op = "mtp",
                   .repeats = repeats,
                   .flop = 2 * n * (m.chosen * m.expert + m.shared) / s.gpus,
                   .fp8 = true,
                   .bytes = (m.touched(n) * m.expert + m.shared) / s.gpus + (m.down + (m.q_up + m.o) / attention_split) +
                            kBf16Bytes * (m.kv_up / attention_split + m.index_weights + 2 * m.d * m.d) +
                            own * m.chosen_tokens * m.latent_bytes(s.fp8_latent),
                   .kernels = 12});
  };
  pass("MTP steps", drafts, s.requests);
  pass("MTP rows of the cycle", 1, rows);
  all.push_back({.part = "MTP heads",
                 .op = "head",
                 .repeats = drafts,
                 .flop = 2 * s.requests * m.d * m.vocabulary / s.gpus,
                 .bytes = kBf16Bytes * m.d * m.vocabulary / s.gpus});
}

}  // namespace

double floor_seconds(const Work& w, const Gpu& gpu) {
  return w.repeats * std::max({w.flop / (w.fp8 ? gpu.fp8 : gpu.bf16), w.bytes / gpu.read, w.peer_bytes / gpu.peer});
}

std::vector<Work> decode_work(const model::Config& config, const DecodeShape& s) {
  const Dimensions m(config);
  const double g = s.gpus;
  const bool split = s.layout == Layout::kTensor;
  const double rows = s.requests * s.rows;
  const double own = split ? rows : rows / g;  // rows that pass this GPU outside experts
  const double weights = split ? g : 1;        // GPUs that share the weights of attention
  const double requests = split ? s.requests : s.requests / g;
  const double heads = split ? m.heads / g : m.heads, kda_heads = split ? m.kda_heads / g : m.kda_heads;
  const double expert_rows = rows * m.chosen * (split ? 1 : 1 / g);
  const double middle = split ? m.middle / g : m.middle;
  const double peers = (g - 1) / g;
  const double state = requests * kda_heads * m.kda_dim * m.kda_dim * s.state_bytes * (s.fold ? 2 : 2 * s.rows);

  std::vector<Work> all;
  all.push_back({.part = "routed experts",
                 .op = "moe_decode",
                 .repeats = m.moe,
                 .flop = 2 * rows * m.chosen * m.expert / g,
                 .fp8 = true,
                 .bytes = m.touched(rows) * m.expert / g,
                 .kernels = 2});
  all.push_back(
      {.part = "rows of experts", .op = "moe_rows", .repeats = m.moe, .fp8 = true, .bytes = expert_rows * (m.d + 2 * middle + 4 * m.d)});
  all.push_back({.part = "shared expert",
                 .op = "moe_shared",
                 .repeats = m.moe,
                 .flop = 2 * rows * m.shared / g,
                 .fp8 = true,
                 .bytes = m.shared / g,
                 .kernels = 0});
  all.push_back(
      {.part = "router", .op = "route", .repeats = m.moe, .flop = 2 * own * m.d * m.experts, .bytes = kBf16Bytes * m.d * m.experts});
  all.push_back({.part = "dense MLP",
                 .op = "dense_mlp",
                 .repeats = m.dense,
                 .flop = 2 * rows * m.dense_mlp / g,
                 .fp8 = true,
                 .bytes = m.dense_mlp / g});
  all.push_back({.part = "KDA projections",
                 .op = "kda_projections",
                 .repeats = m.kda,
                 .flop = 2 * own * m.kda_weights / weights,
                 .bytes = kBf16Bytes * m.kda_weights / weights,
                 .kernels = 3});
  all.push_back(
      {.part = "KDA state", .op = "kda_decode", .repeats = m.kda, .flop = own * kda_heads * 7 * m.kda_dim * m.kda_dim, .bytes = state});
  all.push_back({.part = "sparse projections, FP8",
                 .op = "mla_projections",
                 .repeats = m.sparse,
                 .flop = 2 * own * (m.down + (m.q_up + m.o) / weights),
                 .fp8 = true,
                 .bytes = m.down + (m.q_up + m.o) / weights,
                 .kernels = 4});
  all.push_back({.part = "sparse projections, BF16",
                 .op = "mla_projections",
                 .repeats = m.sparse,
                 .flop = 2 * own * (m.kv_up / weights + m.index_weights),
                 .bytes = kBf16Bytes * (m.kv_up / weights + m.index_weights),
                 .kernels = 3});
  all.push_back({.part = "indexer",
                 .op = "indexer_select",
                 .repeats = m.sparse,
                 .flop = 2 * own * (s.context / m.pool) * m.index_heads * m.index_dim,
                 .fp8 = true,
                 .bytes = requests * (s.context / m.pool) * m.index_bytes()});
  all.push_back(
      {.part = "choice of pools", .op = "indexer_select", .repeats = m.sparse, .bytes = own * (s.context / m.pool) * 2 * kF32Bytes});
  all.push_back({.part = "sparse attention",
                 .op = "mla_attend",
                 .repeats = m.sparse,
                 .flop = 2 * own * heads * std::min(m.chosen_tokens, s.context) * 2 * m.rank,
                 .bytes = own * std::min(m.chosen_tokens, s.context) * m.latent_bytes(s.fp8_latent),
                 .kernels = 2});
  all.push_back({.part = "mHC",
                 .op = "mhc_mix",
                 .repeats = 2 * static_cast<double>(config.layer_count()),
                 .flop = 2 * own * m.mixing,
                 .bytes = own * m.stream_bytes() + kBf16Bytes * m.mixing});
  if (g > 1 && split)
    all.push_back({.part = "sums over GPUs",
                   .op = "all_reduce",
                   .repeats = 2 * static_cast<double>(config.layer_count()),
                   .peer_bytes = 2 * peers * rows * m.d * kBf16Bytes});
  else if (g > 1)
    all.push_back({.part = "rows to experts and back",
                   .op = "exchange",
                   .repeats = static_cast<double>(config.layer_count()),
                   .peer_bytes = peers * rows * m.transport_bytes(true)});
  all.push_back({.part = "head",
                 .op = "head",
                 .flop = 2 * rows * m.d * m.vocabulary / g,
                 .bytes = kBf16Bytes * m.d * m.vocabulary / g + rows * m.vocabulary / g * 2 * kF32Bytes});
  add_drafter(all, m, s);
  return all;
}

std::vector<Work> prefill_work(const model::Config& config, const PrefillShape& s) {
  const Dimensions m(config);
  const double g = s.gpus;
  const double own = s.chunk / g;
  const double expert_rows = s.chunk * m.chosen * (s.split_experts ? 1 : 1 / g);
  const double middle = s.split_experts ? m.middle / g : m.middle;
  const double touched = m.touched(s.chunk);
  const double per_row_bf16 = m.width * kBf16Bytes;

  std::vector<Work> all;
  all.push_back({.part = "experts, gate and up",
                 .op = "moe_prefill",
                 .repeats = m.moe,
                 .flop = 2 * s.chunk * m.chosen * 2 * m.d * m.middle / g,
                 .fp8 = true,
                 .bytes = touched * 2 * m.d * m.middle / g + expert_rows * (m.d + middle)});
  all.push_back({.part = "experts, down",
                 .op = "moe_prefill",
                 .repeats = m.moe,
                 .flop = 2 * s.chunk * m.chosen * m.d * m.middle / g,
                 .fp8 = true,
                 .bytes = touched * m.d * m.middle / g + expert_rows * (middle + kBf16Bytes * m.d)});
  all.push_back({.part = "experts, sum of rows",
                 .op = "moe_rows",
                 .repeats = m.moe,
                 .bytes = expert_rows * kBf16Bytes * m.d + s.chunk * kBf16Bytes * m.d});
  all.push_back({.part = "shared expert", .op = "moe_shared", .repeats = m.moe, .flop = 2 * s.chunk * m.shared / g, .fp8 = true});
  all.push_back({.part = "router", .op = "route", .repeats = m.moe, .flop = 2 * own * m.d * m.experts});
  all.push_back({.part = "dense MLP", .op = "dense_mlp", .repeats = m.dense, .flop = 2 * s.chunk * m.dense_mlp / g, .fp8 = true});
  all.push_back({.part = "KDA projections",
                 .op = "kda_projections",
                 .repeats = m.kda,
                 .flop = 2 * own * m.kda_weights,
                 .bytes = kBf16Bytes * m.kda_weights + own * (2 * m.d + 5 * m.width) * kBf16Bytes});
  all.push_back({.part = "KDA chunks",
                 .op = "kda_chunk",
                 .repeats = m.kda,
                 .flop = own * m.kda_heads * 2 * (5 * kChunkRows * m.kda_dim + 3 * m.kda_dim * m.kda_dim),
                 .bytes = own * per_row_bf16 * 5});
  all.push_back({.part = "KDA convolution, norms, gates", .op = "kda_chunk", .repeats = m.kda, .bytes = own * per_row_bf16 * 9});
  all.push_back({.part = "sparse projections, FP8",
                 .op = "mla_projections",
                 .repeats = m.sparse,
                 .flop = 2 * own * (m.down + m.q_up + m.o),
                 .fp8 = true,
                 .bytes = m.down + m.q_up + m.o});
  all.push_back(
      {.part = "sparse projections, BF16", .op = "mla_projections", .repeats = m.sparse, .flop = 2 * own * (m.kv_up + m.index_weights)});
  all.push_back({.part = "indexer",
                 .op = "indexer_prefill",
                 .repeats = m.sparse,
                 .flop = 2 * own * (s.past / m.pool) * m.index_heads * m.index_dim,
                 .fp8 = true});
  all.push_back(
      {.part = "choice of pools", .op = "indexer_prefill", .repeats = m.sparse, .bytes = own * (s.past / m.pool) * 2 * kF32Bytes});
  // Rows that neighbours share come from the second-level cache: an eighth is read from memory.
  const double attended = std::min(m.chosen_tokens, std::max(s.past, 1.0));
  all.push_back({.part = "sparse attention",
                 .op = "mla_prefill",
                 .repeats = m.sparse,
                 .flop = 2 * own * m.heads * attended * 2 * m.rank,
                 .bytes = own * attended * m.rank * kBf16Bytes / 8});
  all.push_back({.part = "mHC",
                 .op = "mhc_mix",
                 .repeats = 2 * static_cast<double>(config.layer_count()),
                 .flop = 2 * own * m.mixing,
                 .bytes = own * m.stream_bytes()});
  if (g > 1)
    all.push_back({.part = "rows to experts and back",
                   .op = "exchange",
                   .repeats = static_cast<double>(config.layer_count()),
                   .peer_bytes = (g - 1) / g * s.chunk * m.transport_bytes(s.fp8_transport)});
  return all;
}

}  // namespace baton::plan
