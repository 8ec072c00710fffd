#include "meter/op_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace baton::meter {
namespace {

double d(int64_t n) { return static_cast<double>(n); }
double bytes_of(const ConstMatrixView& v) { return v.empty() ? 0 : d(v.rows) * d(v.cols) * d(dtype_bytes(v.dtype)); }
int64_t blocks(int64_t n) { return (n + ops::kScaleBlock - 1) / ops::kScaleBlock; }
double bytes_of(const ops::WeightView& w) {
  return d(w.n) * d(w.k) * d(dtype_bytes(w.dtype)) + (w.dtype == DType::kF8E4M3 ? 4 * d(blocks(w.n)) * d(blocks(w.k)) : 0);
}
const char* name_of(DType t) { return t == DType::kF32 ? "f32" : t == DType::kBF16 ? "bf16" : "fp8"; }
std::string shape_of(const ops::WeightView& w) { return fmt::format("{} x {} {}", w.n, w.k, name_of(w.dtype)); }

Arithmetic arithmetic_of(DType x, DType w, ops::ActivationQuant quant) {
  if (w == DType::kF8E4M3 && quant == ops::ActivationQuant::kE4m3Block) return Arithmetic::kFp8;
  return x == DType::kF32 ? Arithmetic::kFloat : Arithmetic::kBf16;
}

template <class T>
std::vector<T> on_host(ops::Backend& backend, const T* device, int64_t count) {
  std::vector<T> out(static_cast<size_t>(count));
  if (count > 0) backend.copy_to_host(out.data(), device, count * static_cast<int64_t>(sizeof(T)));
  return out;
}
std::vector<ops::SequenceRows> sequences_of(ops::Backend& backend, const ops::BatchView& b) {
  return on_host(backend, b.sequences, b.sequence_count);
}

double latent_row_bytes(const ops::LatentLayout& l) { return d(l.row_bytes); }
double pooled_row_bytes(const ops::IndexerLayout& l) { return d(l.dim) * d(dtype_bytes(l.dtype)) + (l.dtype == DType::kF8E4M3 ? 4 : 0); }

double kda_state_bytes(const ops::KdaWeights& w, const ops::KdaSlotLayout& l) {
  return d(w.heads) * d(w.dim) * d(w.dim) * d(dtype_bytes(l.state_dtype));
}
double kda_window_bytes(const ops::KdaWeights& w, const ops::KdaSlotLayout& l) {
  return 9 * d(w.heads) * d(w.dim) * d(dtype_bytes(l.activation_dtype));
}
double kda_row_bytes(const ops::KdaWeights& w, const ops::KdaSlotLayout& l) {
  return (4 * d(w.heads) * d(w.dim) + d(w.heads)) * d(dtype_bytes(l.activation_dtype));
}
// Decay, what the state says of the key, the update, what it says of the query.
double kda_row_flop(const ops::KdaWeights& w) { return d(w.heads) * 7 * d(w.dim) * d(w.dim); }

struct Chosen {
  double tokens = 0;    // of all rows
  double distinct = 0;  // a sequence's rows together
};

// What rows attend to. Tails of a sequence's rows overlap: the longest counts.
Chosen chosen_tokens(ops::Backend& backend, const ops::BatchView& batch, const ops::Selection& s, int32_t pool) {
  Chosen out;
  const auto counts = on_host(backend, s.counts, batch.row_count);
  const auto tails = on_host(backend, s.tail_begin, batch.row_count);
  const auto pools = on_host(backend, s.pools, int64_t{batch.row_count} * s.pool_capacity);
  std::vector<bool> met;
  for (const ops::SequenceRows& q : sequences_of(backend, batch)) {
    met.assign(static_cast<size_t>((q.position + q.row_count) / pool + 1), false);
    int32_t first_tail = q.position + q.row_count;
    for (int32_t r = q.row_begin; r < q.row_begin + q.row_count; ++r) {
      const auto row = static_cast<size_t>(r);
      const int32_t position = q.position + r - q.row_begin;
      out.tokens += d(counts[row]) * pool + d(position + 1 - tails[row]);
      first_tail = std::min(first_tail, tails[row]);
      for (int32_t i = 0; i < counts[row]; ++i) {
        const auto p = static_cast<size_t>(pools[row * static_cast<size_t>(s.pool_capacity) + static_cast<size_t>(i)]);
        if (!met[p]) out.distinct += d(pool);
        met[p] = true;
      }
    }
    out.distinct += d(q.position + q.row_count - first_tail);
  }
  return out;
}

OpCost expert_cost(ops::Backend& backend, const ops::ExpertAssignment& a, int64_t slots, const ops::WeightView& w, double matrices, DType x,
                   ops::ActivationQuant quant) {
  std::vector<bool> chosen(static_cast<size_t>(a.experts), false);
  for (const int32_t id : on_host(backend, a.ids, slots)) chosen[static_cast<size_t>(id)] = true;
  const auto touched = static_cast<double>(std::count(chosen.begin(), chosen.end(), true));
  return {.flop = 2 * d(slots) * d(w.n) * d(w.k) * matrices,
          .bytes = touched * bytes_of(w) * matrices,
          .arithmetic = arithmetic_of(x, w.dtype, quant),
          .shape = fmt::format("{} experts of {}", a.experts, shape_of(w))};
}

}  // namespace

OpCost cost_of(ops::Backend&, const ops::EmbedParams& p) {
  return {.bytes = d(p.y.rows) * d(p.table.cols) * d(dtype_bytes(p.table.dtype)) + bytes_of(p.y),
          .shape = fmt::format("{} streams", p.streams)};
}

OpCost cost_of(ops::Backend&, const ops::RmsNormParams& p) {
  return {.bytes = bytes_of(p.x) + 2 * bytes_of(p.add_to) + bytes_of(p.y), .shape = fmt::format("{}", p.x.cols)};
}

OpCost cost_of(ops::Backend&, const ops::GemmParams& p) {
  OpCost c{.bytes = bytes_of(p.x)};
  for (const ops::GemmOutput& o : p.outputs) {
    c.flop += 2 * d(p.x.rows) * d(o.w.n) * d(o.w.k);
    c.bytes += bytes_of(o.w) + bytes_of(o.y);
    c.arithmetic = std::max(c.arithmetic, arithmetic_of(p.x.dtype, o.w.dtype, p.quant));
    c.shape += fmt::format("{}{}", c.shape.empty() ? "" : " + ", o.w.n);
  }
  const ops::WeightView& first = p.outputs.front().w;
  c.shape += fmt::format(" x {} {}", first.k, name_of(first.dtype));
  return c;
}

OpCost cost_of(ops::Backend&, const ops::GemmBatchedParams& p) {
  OpCost c{.bytes = bytes_of(p.x) + bytes_of(p.y)};
  for (const ops::WeightView& w : p.w) {
    c.flop += 2 * d(p.x.rows) * d(w.n) * d(w.k);
    c.bytes += bytes_of(w);
  }
  c.arithmetic = arithmetic_of(p.x.dtype, p.w.front().dtype, ops::ActivationQuant::kNone);
  c.shape = fmt::format("{} of {}", p.w.size(), shape_of(p.w.front()));
  return c;
}

OpCost cost_of(ops::Backend&, const ops::GatedMlpParams& p) {
  return {.flop = 4 * d(p.x.rows) * d(p.gate.n) * d(p.gate.k),
          .bytes = bytes_of(p.x) + bytes_of(p.gate) + bytes_of(p.up) + bytes_of(p.h),
          .arithmetic = arithmetic_of(p.x.dtype, p.gate.dtype, p.quant),
          .shape = shape_of(p.gate)};
}

OpCost cost_of(ops::Backend&, const ops::MhcMixParams& p) {
  const double s = d(p.stream_count);
  const double expand = p.y.empty() ? 0 : 2 * d(p.streams.rows) * d(p.streams.cols) * (s + 1);
  return {.flop = 2 * d(p.streams.rows) * d(p.fn.n) * d(p.fn.k) + 2 * d(p.streams.rows) * d(p.streams.cols) + expand,
          .bytes = bytes_of(p.streams) * (p.y.empty() ? 1 : 2) + bytes_of(p.y) + bytes_of(p.x) + bytes_of(p.fn),
          .arithmetic = p.streams.dtype == DType::kF32 ? Arithmetic::kFloat : Arithmetic::kBf16,
          .shape = fmt::format("{} streams of {}", p.stream_count, p.x.cols)};
}

OpCost cost_of(ops::Backend&, const ops::MhcExpandParams& p) {
  return {.flop = 2 * d(p.streams.rows) * d(p.streams.cols) * d(p.stream_count + 1),
          .bytes = 2 * bytes_of(p.streams) + bytes_of(p.y),
          .arithmetic = Arithmetic::kFloat,
          .shape = fmt::format("{} streams", p.stream_count)};
}

OpCost cost_of(ops::Backend&, const ops::MhcFinalParams& p) {
  return {.bytes = bytes_of(p.streams) + bytes_of(p.h), .shape = fmt::format("{} streams", p.stream_count)};
}

OpCost cost_of(ops::Backend& backend, const ops::KdaParams& p) {
  OpCost c{.bytes = bytes_of(p.inputs) + bytes_of(p.gate) + bytes_of(p.y), .arithmetic = Arithmetic::kFloat};
  const auto sequences = sequences_of(backend, p.batch);
  double folded_rows = 0;
  bool verify = false;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const ops::SequenceRows& q = sequences[i];
    int32_t folded = 0;
    if (p.fold.counts != nullptr) folded = on_host(backend, p.fold.counts + i, 1)[0];
    if (p.fold.counts == nullptr && p.fold.slot_offset >= 0)
      backend.copy_to_host(&folded, p.slots.slot(q.slot) + p.fold.slot_offset, sizeof folded);
    if (q.row_count == 0 && folded == 0) continue;
    const bool writes = q.verify == 0 || folded > 0;
    c.bytes += (kda_state_bytes(p.weights, p.layout) + kda_window_bytes(p.weights, p.layout)) * (writes ? 2 : 1);
    if (q.verify != 0) c.bytes += d(q.row_count) * kda_row_bytes(p.weights, p.layout);
    folded_rows += folded;
    verify = verify || q.verify != 0;
  }
  c.bytes += folded_rows * kda_row_bytes(p.weights, p.layout);
  c.flop = (d(p.batch.row_count) + folded_rows) * kda_row_flop(p.weights);
  c.shape = fmt::format("{} heads of {}, {} state{}{}", p.weights.heads, p.weights.dim, name_of(p.layout.state_dtype),
                        p.chunked ? ", chunked" : "", verify ? ", verify" : "");
  return c;
}

OpCost cost_of(ops::Backend& backend, const ops::KdaFoldParams& p) {
  double rows = 0, slots = 0;
  for (const int32_t n : on_host(backend, p.counts, p.count)) {
    rows += n;
    slots += n > 0 ? 1 : 0;
  }
  return {.flop = rows * kda_row_flop(p.weights),
          .bytes = slots * 2 * (kda_state_bytes(p.weights, p.layout) + kda_window_bytes(p.weights, p.layout)) +
                   rows * kda_row_bytes(p.weights, p.layout),
          .arithmetic = Arithmetic::kFloat,
          .shape = fmt::format("{} heads of {}, {} state", p.weights.heads, p.weights.dim, name_of(p.layout.state_dtype))};
}

OpCost cost_of(ops::Backend&, const ops::LatentWriteParams& p) {
  return {.bytes = bytes_of(p.x) + d(p.x.rows) * latent_row_bytes(p.layout),
          .shape = fmt::format("{} {}", p.layout.dim, name_of(p.layout.dtype))};
}

OpCost cost_of(ops::Backend&, const ops::IndexerKeysParams& p) {
  const double ring = 2 * d(p.layout.dim) * d(dtype_bytes(p.layout.ring_dtype));
  return {
      .bytes = bytes_of(p.key) + bytes_of(p.gamma) + 2 * d(p.key.rows) * ring + d(p.key.rows) / p.layout.pool * pooled_row_bytes(p.layout),
      .shape = fmt::format("{} {}", p.layout.dim, name_of(p.layout.dtype))};
}

OpCost cost_of(ops::Backend& backend, const ops::IndexerSelectParams& p) {
  double keys = 0, scores = 0;
  for (const ops::SequenceRows& q : sequences_of(backend, p.batch)) {
    if (q.row_count == 0) continue;
    keys += d((q.position + q.row_count) / p.layout.pool);
    for (int32_t r = 0; r < q.row_count; ++r) scores += d((q.position + r + 1) / p.layout.pool);
  }
  return {.flop = 2 * scores * d(p.heads) * d(p.layout.dim),
          .bytes = bytes_of(p.q) + bytes_of(p.weights) + keys * pooled_row_bytes(p.layout) + 4 * d(p.q.rows) * d(p.selection.pool_capacity),
          .arithmetic = p.layout.dtype == DType::kF8E4M3 ? Arithmetic::kFp8
                        : p.layout.dtype == DType::kBF16 ? Arithmetic::kBf16
                                                         : Arithmetic::kFloat,
          .shape = fmt::format("{} heads of {} {}", p.heads, p.layout.dim, name_of(p.layout.dtype))};
}

OpCost cost_of(ops::Backend& backend, const ops::MlaAttendParams& p) {
  const Chosen chosen = chosen_tokens(backend, p.batch, p.selection, p.pool);
  return {.flop = 4 * chosen.tokens * d(p.heads) * d(p.layout.dim),
          .bytes = bytes_of(p.q) + bytes_of(p.out) + chosen.distinct * latent_row_bytes(p.layout),
          .arithmetic = p.q.dtype == DType::kF32 ? Arithmetic::kFloat : Arithmetic::kBf16,
          .shape = fmt::format("{} heads of {} {}", p.heads, p.layout.dim, name_of(p.layout.dtype))};
}

OpCost cost_of(ops::Backend& backend, const ops::MlaAttendExpandedParams& p) {
  const Chosen chosen = chosen_tokens(backend, p.batch, p.selection, p.pool);
  const double dims = d(p.key[0].n + p.value[0].n);
  return {.flop = 2 * (chosen.tokens + chosen.distinct * d(p.layout.dim)) * d(p.heads) * dims,
          .bytes = bytes_of(p.q) + bytes_of(p.out) + chosen.distinct * latent_row_bytes(p.layout),
          .arithmetic = p.q.dtype == DType::kF32 ? Arithmetic::kFloat : Arithmetic::kBf16,
          .shape = fmt::format("{} heads of {} {}", p.heads, p.layout.dim, name_of(p.layout.dtype))};
}

OpCost cost_of(ops::Backend&, const ops::MoeRouteParams& p) {
  return {.flop = 2 * d(p.x.rows) * d(p.router.n) * d(p.router.k),
          .bytes = bytes_of(p.x) + bytes_of(p.router) + bytes_of(p.scores),
          .arithmetic = arithmetic_of(p.x.dtype, p.router.dtype, ops::ActivationQuant::kNone),
          .shape = shape_of(p.router)};
}

OpCost cost_of(ops::Backend& backend, const ops::MoeGateUpParams& p) {
  OpCost c = expert_cost(backend, p.from, p.h.rows, p.gate[0], 2, p.x.dtype, p.quant);
  c.bytes += bytes_of(p.x) + bytes_of(p.h);
  return c;
}

OpCost cost_of(ops::Backend& backend, const ops::MoeDownParams& p) {
  OpCost c = expert_cost(backend, p.from, p.h.rows, p.down[0], 1, p.h.dtype, p.quant);
  c.bytes += bytes_of(p.h) + bytes_of(p.y);
  return c;
}

OpCost cost_of(ops::Backend&, const ops::MoeCombineParams& p) {
  return {.bytes = bytes_of(p.y) + bytes_of(p.shared) + bytes_of(p.out), .shape = fmt::format("{} of {}", p.from.k, p.out.cols)};
}

// What a rank of the whole must move: rows in and out once; h and y are the op's own.
OpCost cost_of(ops::Backend& backend, const ops::MoeExpertsParams& p) {
  const int64_t slots = p.x.rows * p.from.k;
  OpCost c = expert_cost(backend, p.from, slots, p.gate[0], 2, p.x.dtype, p.quant);
  const OpCost down = expert_cost(backend, p.from, slots, p.down[0], 1, p.x.dtype, p.quant);
  c.flop += down.flop;
  c.bytes += down.bytes + bytes_of(p.x) + bytes_of(p.shared) + bytes_of(p.out);
  return c;
}

OpCost cost_of(ops::Backend&, const ops::SampleParams& p) {
  return {.bytes = bytes_of(p.logits), .shape = fmt::format("{}", p.logits.cols)};
}

OpCost cost_of(ops::Backend&, const ops::WindowWriteParams& p) {
  return {.bytes = bytes_of(p.key) + bytes_of(p.value) + d(p.key.rows) * d(p.layout.entry_bytes()),
          .shape = fmt::format("{} heads of {}", p.layout.kv_heads, p.layout.dim)};
}

OpCost cost_of(ops::Backend& backend, const ops::WindowAttendParams& p) {
  double tokens = 0;
  for (const ops::SequenceRows& q : sequences_of(backend, p.batch)) tokens += d(std::min(q.position, p.layout.window));
  const double seen = (tokens + d(p.batch.sequence_count) * d(p.block)) * d(p.block);
  return {.flop = 4 * seen * d(p.heads) * d(p.layout.dim),
          .bytes = bytes_of(p.q) + bytes_of(p.key) + bytes_of(p.value) + bytes_of(p.out) + tokens * d(p.layout.entry_bytes()),
          .arithmetic = p.q.dtype == DType::kF32 ? Arithmetic::kFloat : Arithmetic::kBf16,
          .shape = fmt::format("{} of {} heads of {}", p.heads, p.layout.kv_heads, p.layout.dim)};
}

OpCost cost_of(ops::Backend&, const ops::BlockConvParams& p) {
  return {.bytes = bytes_of(p.x) + bytes_of(p.dynamic) + bytes_of(p.y), .shape = fmt::format("{}", p.x.cols)};
}

OpCost cost_of(ops::Backend&, const ops::DraftPathParams& p) {
  return {.bytes = bytes_of(p.logits) + 2 * d(p.logits.rows) * d(p.top) * d(p.hidden.cols) * d(dtype_bytes(p.predecessor.dtype)),
          .shape = fmt::format("{} candidates of {}", p.top, p.logits.cols)};
}

}  // namespace baton::meter
