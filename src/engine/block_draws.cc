#include "engine/block_draws.h"

#include <algorithm>
#include <limits>

namespace baton::engine {

int64_t BlockDraws::bytes(const model::Glm5Next& model, int64_t rows, bool proposals) {
  const int64_t of_vocabulary = model.config().vocab_size * int64_t{sizeof(float)};
  return rows * (model.config().hidden_size * dtype_bytes(model.numerics().activation) + of_vocabulary * (proposals ? 2 : 1));
}

Result<BlockDraws> BlockDraws::create(model::Glm5Next& model, ops::Backend& backend, int64_t rows, int64_t vocabulary, bool proposals) {
  BATON_CHECK(vocabulary >= 1 && vocabulary <= model.config().vocab_size && rows <= model.options().max_logits_rows);
  BlockDraws d(model, backend, rows, vocabulary);
  BATON_ASSIGN(d.hidden_, backend.allocate(rows * model.config().hidden_size * dtype_bytes(model.numerics().activation)));
  BATON_ASSIGN(d.logits_, backend.allocate(rows * model.config().vocab_size * int64_t{sizeof(float)}));
  if (proposals) {
    BATON_ASSIGN(d.probabilities_, backend.allocate(rows * vocabulary * int64_t{sizeof(float)}));
  }
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
  bool any = false, proposals = false;
  for (const BlockSource& b : blocks) {
    if (b.hidden.rows == 0) continue;
    proposals = proposals || !b.proposals.empty();
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
                     .top_stride = top,
                     .probabilities = proposals ? reinterpret_cast<float*>(probabilities_.data()) : nullptr});
    if (proposals && judge(blocks) && any) write_logprobs(logits);
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

bool BlockDraws::judge(std::span<const BlockSource> blocks) {
  bool changed = false;
  size_t first = 0;
  for (const BlockSource& b : blocks) {
    const auto rows = static_cast<size_t>(b.hidden.rows);
    if (!b.proposals.empty() && rows > 0) {
      const auto vocabulary = static_cast<size_t>(vocabulary_);
      targets_.resize(b.drafts.size() * vocabulary);
      backend_->copy_to_host(targets_.data(), probabilities_.data() + first * vocabulary * sizeof(float),
                             std::ssize(targets_) * int64_t{sizeof(float)});
      chances_.clear();
      for (size_t i = 0; i < b.drafts.size(); ++i)
        chances_.push_back(speculate::chances_of(rows_[first].seed, b.position + static_cast<int32_t>(i)));
      const auto drawn = std::span(sampled_).subspan(first, rows);
      before_.assign(drawn.begin(), drawn.end());
      speculate::judge_block(b.drafts, b.proposals, targets_, chances_, drawn);
      changed = changed || !std::equal(drawn.begin(), drawn.end(), before_.begin());
    }
    first += rows;
  }
  return changed;
}

// Of the draws as they are now. The sampling op gives the log-probability of what it draws; a large bias makes it draw a given token.
void BlockDraws::write_logprobs(MatrixView logits) {
  constexpr float kForce = std::numeric_limits<float>::max() / 4;
  const size_t n = rows_.size();
  forced_.clear();
  for (const int32_t token : sampled_) forced_.push_back({std::max(token, 0), kForce});
  forcing_.clear();
  for (size_t i = 0; i < n; ++i)
    forcing_.push_back({.bias = &forced_[i], .bias_count = 1, .logprobs = rows_[i].logprobs >= 0 && sampled_[i] >= 0 ? 0 : -1});
  forced_ids_.resize(n);
  sampler_.sample(
      {.logits = logits.columns(0, vocabulary_), .rows = forcing_.data(), .ids = forced_ids_.data(), .logprobs = logprobs_.data()});
}

}  // namespace baton::engine
