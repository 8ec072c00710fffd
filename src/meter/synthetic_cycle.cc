#include "meter/synthetic_cycle.h"

#include <algorithm>
#include <random>

#include "ops/head.h"

namespace baton::meter {
namespace {

constexpr int64_t kSeedRows = 256;  // of one launch, at least

int64_t pages_of(int64_t tokens) { return (tokens + ops::kPageTokens - 1) / ops::kPageTokens; }
int64_t pages_each(const CycleShape& s) { return pages_of(s.context + s.rows); }
int64_t drawn_rows(const CycleShape& s) { return s.head ? int64_t{s.sequences} * (s.verify ? s.rows : 1) : 0; }

// As long as the context, or at the same place of a page.
int64_t seed_tokens(int64_t context) {
  return context <= kSeedTokens ? context : kSeedTokens - ops::kPageTokens + context % ops::kPageTokens;
}

}  // namespace

model::ModelOptions SyntheticCycle::allow(model::ModelOptions o, const CycleShape& s) {
  o.cache.mtp = false;
  o.cache.verify_rows = s.verify ? s.rows : 0;
  o.max_rows = std::max(int64_t{s.sequences} * s.rows, kSeedRows);
  o.max_logits_rows = std::max<int64_t>(drawn_rows(s), 1);
  o.max_sequences = s.sequences;
  o.max_pages = pages_each(s);
  return o;
}

SyntheticCycle::SyntheticCycle(model::Glm5Next& model, ops::Backend& backend, const CycleShape& shape)
    : model_(model), backend_(backend), shape_(shape), seed_tokens_(seed_tokens(shape.context)), pages_each_(pages_each(shape)),
      tables_(static_cast<size_t>(shape.sequences)) {}

Result<std::unique_ptr<SyntheticCycle>> SyntheticCycle::create(model::Glm5Next& model, ops::Backend& backend, const CycleShape& shape) {
  BATON_CHECK(!shape.verify || shape.accepted <= shape.rows);
  std::unique_ptr<SyntheticCycle> c(new SyntheticCycle(model, backend, shape));
  const int64_t n = shape.sequences;
  const int64_t row = model.config().hidden_size * dtype_bytes(model.numerics().activation);
  BATON_ASSIGN(c->pages_, backend.allocate(n * c->pages_each_ * model.cache_layout().page_bytes));
  BATON_ASSIGN(c->slots_, backend.allocate(n * model.cache_layout().slot_bytes));
  BATON_ASSIGN(c->inputs_, model::LaunchRowsBuffer::create(backend, c->most_rows(), n, c->pages_each_));
  for (int64_t q = 0; q < n; ++q)
    for (int64_t i = 0; i < c->pages_each_; ++i) c->tables_[static_cast<size_t>(q)].push_back(static_cast<int32_t>(q * c->pages_each_ + i));
  BATON_ASSIGN(c->folds_, backend.allocate(2 * n * 4));
  BATON_ASSIGN(c->hidden_, backend.allocate(c->most_rows() * row));
  if (const int64_t drawn = drawn_rows(shape); drawn > 0) {
    BATON_ASSIGN(c->drawn_, backend.allocate(drawn * row));
    BATON_ASSIGN(c->logits_, backend.allocate(drawn * model.config().vocab_size * 4));
    const std::vector<ops::SamplingRow> greedy(static_cast<size_t>(drawn));
    const auto bytes = static_cast<int64_t>(greedy.size() * sizeof(ops::SamplingRow));
    BATON_ASSIGN(c->sampling_, backend.allocate(bytes + drawn * 4));
    backend.copy_to_device(c->sampling_.data(), greedy.data(), bytes);
  }
  c->compute_seed();
  c->spread();

  std::vector<ops::SequenceRows> sequences;
  std::vector<int32_t> folds;
  for (int32_t q = 0; q < shape.sequences; ++q) {
    sequences.push_back({q * shape.rows, shape.rows, static_cast<int32_t>(shape.context), q, shape.verify ? 1 : 0});
    folds.push_back(q);
  }
  folds.resize(static_cast<size_t>(2 * n), shape.accepted);
  backend.copy_to_device(c->folds_.data(), folds.data(), 2 * n * 4);
  std::vector<int32_t> ids(static_cast<size_t>(shape.sequences) * static_cast<size_t>(shape.rows));
  std::mt19937_64 random(shape.seed);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(model.config().vocab_size));
  c->input_ = c->upload(sequences, ids);
  backend.synchronize();
  return c;
}

MatrixView SyntheticCycle::hidden(int64_t rows) const {
  const int64_t d = model_.config().hidden_size;
  return {hidden_.data(), model_.numerics().activation, rows, d, d};
}

model::ForwardInput SyntheticCycle::upload(std::span<const ops::SequenceRows> sequences, std::span<const int32_t> ids) {
  model::ForwardInput input = inputs_->upload(sequences, ids, tables_);
  input.rows.pages = {pages_.data(), model_.cache_layout().page_bytes};
  input.rows.slots = {slots_.data(), model_.cache_layout().slot_bytes};
  return input;
}

// Into the first pages and the slot of sequence 0.
void SyntheticCycle::compute_seed() {
  std::mt19937_64 random(shape_.seed + 1);
  for (int64_t done = 0; done < seed_tokens_;) {
    const int64_t rows = std::min(most_rows(), seed_tokens_ - done);
    std::vector<int32_t> ids(static_cast<size_t>(rows));
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(model_.config().vocab_size));
    const ops::SequenceRows first{0, static_cast<int32_t>(rows), static_cast<int32_t>(done), 0, 0};
    model_.forward(upload({&first, 1}, ids), hidden(rows));
    done += rows;
  }
}

// From the last page on: the first ones are the seed, whose own last page is not whole where that of the context is not.
void SyntheticCycle::spread() {
  const int64_t page = model_.cache_layout().page_bytes;
  const int64_t slot = model_.cache_layout().slot_bytes;
  const int64_t whole = std::max<int64_t>(seed_tokens_ / ops::kPageTokens, 1);
  const int64_t count = pages_of(shape_.context);
  const auto copy = [&](int64_t to, int64_t from) {
    if (to != from) backend_.copy_on_device(pages_.data() + to * page, pages_.data() + from * page, page);
  };
  for (int64_t i = count - 1; i >= 0; --i) copy(i, i == count - 1 ? pages_of(seed_tokens_) - 1 : i % whole);
  for (int64_t q = 1; q < shape_.sequences; ++q) {
    backend_.copy_on_device(slots_.data() + q * slot, slots_.data(), slot);
    for (int64_t i = 0; i < count; ++i) copy(q * pages_each_ + i, i);
  }
}

void SyntheticCycle::run() {
  const int64_t n = shape_.sequences;
  if (shape_.verify && shape_.accepted > 0) {
    const auto* slots = reinterpret_cast<const int32_t*>(folds_.data());
    model_.fold(slots, slots + n, shape_.sequences, input_.rows.slots);
  }
  const MatrixView all = hidden(n * shape_.rows);
  model_.forward(input_, all);
  const int64_t drawn = drawn_rows(shape_);
  if (drawn == 0) return;
  MatrixView from = all;
  if (drawn != all.rows) {
    from = {drawn_.data(), all.dtype, drawn, all.cols, all.cols};
    for (int64_t q = 0; q < n; ++q)
      backend_.copy_on_device(from.row_bytes(q), all.row_bytes((q + 1) * shape_.rows - 1), all.cols * dtype_bytes(all.dtype));
  }
  const int64_t v = model_.config().vocab_size;
  const MatrixView logits{logits_.data(), DType::kF32, drawn, v, v};
  model_.head(from, logits);
  auto* const ids = reinterpret_cast<int32_t*>(sampling_.data() + drawn * static_cast<int64_t>(sizeof(ops::SamplingRow)));
  model_.sample(logits, reinterpret_cast<const ops::SamplingRow*>(sampling_.data()), ids);
}

}  // namespace baton::meter
