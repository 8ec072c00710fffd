#include "golden/recorder.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace baton::golden {
namespace {

float element(const std::byte* p, DType dtype, int64_t i) {
  if (dtype == DType::kF32) {
    float x = 0;
    std::memcpy(&x, p + i * 4, 4);
    return x;
  }
  bf16 x{};
  std::memcpy(&x, p + i * 2, 2);
  return to_float(x);
}

std::vector<float> read(const std::byte* p, DType dtype, int64_t n) {
  std::vector<float> out(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) out[static_cast<size_t>(i)] = element(p, dtype, i);
  return out;
}

}  // namespace

void append_rows(ConstMatrixView view, std::vector<float>& out) {
  for (int64_t r = 0; r < view.rows; ++r)
    for (int64_t c = 0; c < view.cols; ++c) out.push_back(element(view.row_bytes(r), view.dtype, c));
}

std::vector<float> pick(const std::vector<float>& rows, const std::vector<int32_t>& positions, int64_t width) {
  std::vector<float> out;
  for (const int32_t p : positions) out.insert(out.end(), rows.begin() + p * width, rows.begin() + (p + 1) * width);
  return out;
}

Recorder::Recorder(const model::Config& config, int64_t rows) : config_(config), rows_(rows) {}

void Recorder::on_streams(int64_t layers_done, ConstMatrixView streams) { append_rows(streams, streams_[layers_done]); }

void Recorder::on_selection(int64_t layer, const ops::Selection& selection, int64_t rows) {
  const auto pool = static_cast<int32_t>(config_.index_kpool);
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<int32_t>& tokens = selections_[{layer, first_ + r}];
    for (int32_t i = 0; i < selection.counts[r]; ++i)
      for (int32_t s = 0; s < pool; ++s) tokens.push_back(selection.pools[r * selection.pool_capacity + i] * pool + s);
    for (int64_t t = selection.tail_begin[r]; t <= first_ + r; ++t) tokens.push_back(static_cast<int32_t>(t));
  }
}

void Recorder::on_experts(int64_t layer, const ops::ExpertAssignment& experts, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    std::vector<int32_t> order(static_cast<size_t>(experts.k));
    std::iota(order.begin(), order.end(), 0);
    const float* w = experts.weights + r * experts.k;
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return w[a] > w[b]; });
    auto& [ids, weights] = experts_[{layer, first_ + r}];
    for (const int32_t j : order) {
      ids.push_back(experts.ids[r * experts.k + j]);
      weights.push_back(w[j]);
    }
  }
}

std::vector<int32_t> Recorder::selection(int64_t layer, int64_t position) const { return selections_.at({layer, position}); }

std::pair<std::vector<int32_t>, std::vector<float>> Recorder::experts(int64_t layer, int64_t position) const {
  return experts_.at({layer, position});
}

KdaCache read_kda(model::SequenceRunner& runner, int sequence, size_t kda_layer) {
  const model::Config& config = runner.model().config();
  const ops::KdaSlotLayout& layout = runner.model().cache_layout().kda[kda_layer];
  const std::byte* slot = runner.slots().slot(sequence);
  return {read(slot + layout.state_offset, layout.state_dtype, config.kda_width() * config.kda_head_dim),
          read(slot + layout.window_offset, layout.activation_dtype, 9 * config.kda_width())};
}

std::vector<float> read_pooled(model::SequenceRunner& runner, int sequence, size_t sparse_layer, const std::vector<int32_t>& pools) {
  const ops::IndexerLayout& layout = runner.model().cache_layout().index[sparse_layer];
  std::vector<float> out;
  for (const int32_t pool : pools) {
    const int64_t position = int64_t{pool} * layout.pool;
    const std::byte* page = runner.pages().page(runner.page_id(sequence, position / ops::kPageTokens));
    const int64_t row = position % ops::kPageTokens / layout.pool;
    const std::vector<float> values =
        read(page + layout.page_offset + row * layout.dim * dtype_bytes(layout.dtype), layout.dtype, layout.dim);
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

std::vector<float> read_tail(model::SequenceRunner& runner, int sequence, size_t sparse_layer, int64_t n) {
  const ops::IndexerLayout& layout = runner.model().cache_layout().index[sparse_layer];
  std::vector<float> out;
  for (int64_t t = n / layout.pool * layout.pool; t < n; ++t) {
    const int64_t entry = t % layout.ring_tokens * 2 * layout.dim * dtype_bytes(layout.ring_dtype);
    const std::vector<float> values = read(runner.slots().slot(sequence) + layout.ring_offset + entry, layout.ring_dtype, 2 * layout.dim);
    out.insert(out.end(), values.begin(), values.end());
  }
  return out;
}

OwnedSelection::OwnedSelection(const model::Config& config, ops::Backend& backend, int64_t rows)
    : capacity_(config.topk_pools()), rows_(rows) {
  auto memory = backend.allocate(rows * (capacity_ + 2) * int64_t{sizeof(int32_t)});
  BATON_CHECK_MSG(memory.ok(), "a selection of {} rows", rows);
  memory_ = std::move(*memory);
}

ops::Selection OwnedSelection::view() {
  auto* pools = reinterpret_cast<int32_t*>(memory_.data());
  int32_t* counts = pools + rows_ * capacity_;
  return {pools, counts, counts + rows_, static_cast<int32_t>(capacity_)};
}

void OwnedSelection::keep_row(int64_t r) {
  const ops::Selection s = view();
  std::copy_n(s.pools + r * capacity_, capacity_, s.pools);
  s.counts[0] = s.counts[r];
  s.tail_begin[0] = s.tail_begin[r];
}

}  // namespace baton::golden
