#include "engine/block_draws.h"

#include <algorithm>

namespace baton::engine {

int64_t BlockDraws::bytes(const model::Glm5Next& model, int64_t rows) {
  return rows *
         (model.config().hidden_size * dtype_bytes(model.numerics().activation) + model.config().vocab_size * int64_t{sizeof(float)});
}

Result<BlockDraws> BlockDraws::create(model::Glm5Next& model, ops::Backend& backend, int64_t rows, int64_t vocabulary) {
  BATON_CHECK(vocabulary >= 1 && vocabulary <= model.config().vocab_size && rows <= model.options().max_logits_rows);
  BlockDraws d(model, backend, rows, vocabulary);
  BATON_ASSIGN(d.hidden_, backend.allocate(rows * model.config().hidden_size * dtype_bytes(model.numerics().activation)));
  BATON_ASSIGN(d.logits_, backend.allocate(rows * model.config().vocab_size * int64_t{sizeof(float)}));
  d.rows_.reserve(static_cast<size_t>(rows));
  d.sampled_.reserve(static_cast<size_t>(rows));
  return d;
}

MatrixView BlockDraws::logits(int64_t rows) const {
  const int64_t v = model_->config().vocab_size;
  BATON_CHECK(rows <= most_rows_);
  return {logits_.data(), DType::kF32, rows, v, v};
}

void BlockDraws::run(std::span<const BlockSource> blocks, SlotSampling& sampling, SlotConstraints& constraints, CycleResult& result) {
  result.tokens.clear();
  result.ends.clear();
  result.drafted.clear();
  result.logprobs.clear();
  result.top.clear();
  result.problems.clear();
  const int64_t d = model_->config().hidden_size;
  const DType type = model_->numerics().activation;
  rows_.clear();
  int32_t top = 0;
  bool any = false;
  for (const BlockSource& b : blocks) {
    if (b.hidden.rows == 0) continue;
    const size_t first = rows_.size();
    BATON_CHECK(static_cast<int64_t>(first) + b.hidden.rows <= most_rows_);
    const MatrixView to{hidden_.data(), type, most_rows_, d, d};
    backend_->copy_on_device(to.row_bytes(static_cast<int64_t>(first)), b.hidden.row_bytes(0), b.hidden.rows * d * dtype_bytes(type));
    sampling.rows(b.slot, b.position, b.drafts, rows_);
    const auto allowed = constraints.lead(b.slot, b.position, b.drafts);
    for (size_t i = 0; i < allowed.size(); ++i) rows_[first + i].allowed = allowed[i];
    any = any || rows_[first].logprobs >= 0;
    top = std::max(top, rows_[first].logprobs);
  }
  const auto n = std::ssize(rows_);
  sampled_.resize(rows_.size());
  logprobs_.resize(any ? rows_.size() : 0);
  top_.resize(rows_.size() * static_cast<size_t>(top));
  if (n > 0) {
    const MatrixView logits = this->logits(n);
    model_->head(ConstMatrixView{hidden_.data(), type, n, d, d}, logits);
    sampler_.sample({.logits = logits.columns(0, vocabulary_),
                     .rows = rows_.data(),
                     .ids = sampled_.data(),
                     .logprobs = any ? logprobs_.data() : nullptr,
                     .top = top > 0 ? top_.data() : nullptr,
                     .top_stride = top});
  }
  result.top_stride = top;
  size_t first = 0;
  for (const BlockSource& b : blocks) {
    if (b.hidden.rows > 0) {
      const auto drawn = std::span(sampled_).subspan(first, static_cast<size_t>(b.hidden.rows));
      const auto count =
          static_cast<size_t>(constraints.settle(b.slot, b.drafts, drawn, static_cast<int32_t>(result.tokens.size()), result));
      for (size_t i = 0; i < count; ++i) {
        const size_t row = first + i;
        result.tokens.push_back(drawn[i]);
        sampling.drawn(b.slot, drawn[i]);
        if (any) result.logprobs.push_back(logprobs_[row]);
        const auto begin = top_.begin() + static_cast<std::ptrdiff_t>(row) * top;
        result.top.insert(result.top.end(), begin, begin + top);
      }
      first += drawn.size();
    }
    result.ends.push_back(static_cast<int32_t>(result.tokens.size()));
    result.drafted.push_back(static_cast<int32_t>(b.drafts.size()));
  }
}

}  // namespace baton::engine
