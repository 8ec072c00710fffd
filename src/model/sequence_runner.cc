#include "model/sequence_runner.h"

namespace baton::model {

Result<SequenceRunner> SequenceRunner::create(Glm5Next& model, ops::Backend& backend, int sequences, int64_t max_tokens, int64_t max_rows) {
  const int64_t pages = (max_tokens + ops::kPageTokens - 1) / ops::kPageTokens;
  SequenceRunner r(model, backend, sequences, max_rows);
  for (int q = 0; q < sequences; ++q)
    for (int64_t i = 0; i < pages; ++i) r.tables_[static_cast<size_t>(q)].push_back(r.page_id(q, i));
  const Config& config = model.config();
  const int64_t element = dtype_bytes(model.numerics().activation);
  BATON_ASSIGN(r.pages_, backend.allocate(pages * sequences * model.cache_layout().page_bytes));
  BATON_ASSIGN(r.slots_, backend.allocate(sequences * model.cache_layout().slot_bytes));
  BATON_ASSIGN(r.inputs_, LaunchRowsBuffer::create(backend, max_rows, sequences, pages));
  BATON_ASSIGN(r.fold_, backend.allocate(2 * int64_t{sizeof(int32_t)}));
  BATON_ASSIGN(r.hidden_, backend.allocate(max_rows * config.hidden_size * element));
  BATON_ASSIGN(r.logits_, backend.allocate(model.options().max_logits_rows * config.vocab_size * 4));
  BATON_ASSIGN(r.sampling_, backend.allocate(sizeof(ops::SamplingRow) + 4));
  return r;
}

int32_t SequenceRunner::page_id(int sequence, int64_t index) const { return static_cast<int32_t>(index * sequences_ + sequence); }

void SequenceRunner::reset(int sequence) {
  positions_[static_cast<size_t>(sequence)] = 0;
  const std::vector<std::byte> zeros(static_cast<size_t>(model_->cache_layout().slot_bytes));
  backend_->copy_to_device(slots().slot(sequence), zeros.data(), model_->cache_layout().slot_bytes);
}

ForwardInput SequenceRunner::upload(std::span<const ops::SequenceRows> sequences, std::span<const int32_t> ids, Observer* observer) {
  BATON_CHECK_MSG(std::ssize(ids) <= max_rows_, "{} rows, planned for {}", ids.size(), max_rows_);
  for (const ops::SequenceRows& s : sequences)
    BATON_CHECK_MSG(s.position + s.row_count <= std::ssize(tables_.front()) * ops::kPageTokens, "a sequence outgrows its pages");
  ForwardInput input = inputs_->upload(sequences, ids, tables_);
  input.rows.pages = pages();
  input.rows.slots = slots();
  input.rows.observer = observer;
  return input;
}

MatrixView SequenceRunner::forward(std::span<const Rows> rows, Observer* observer) {
  std::vector<ops::SequenceRows> sequences;
  std::vector<int32_t> ids;
  for (const Rows& r : rows) {
    sequences.push_back({static_cast<int32_t>(ids.size()), static_cast<int32_t>(r.ids.size()), static_cast<int32_t>(position(r.sequence)),
                         r.sequence, r.verify ? 1 : 0});
    ids.insert(ids.end(), r.ids.begin(), r.ids.end());
    if (!r.verify) positions_[static_cast<size_t>(r.sequence)] += static_cast<int64_t>(r.ids.size());
  }
  const int64_t d = model_->config().hidden_size;
  const MatrixView hidden{hidden_.data(), model_->numerics().activation, static_cast<int64_t>(ids.size()), d, d};
  model_->forward(upload(sequences, ids, observer), hidden);
  return hidden;
}

void SequenceRunner::accept(int sequence, int32_t count) {
  const int32_t arrays[2] = {sequence, count};
  backend_->copy_to_device(fold_.data(), arrays, sizeof arrays);
  const auto* device = reinterpret_cast<const int32_t*>(fold_.data());
  model_->fold(device, device + 1, 1, slots());
  positions_[static_cast<size_t>(sequence)] += count;
}

MatrixView SequenceRunner::head(ConstMatrixView hidden) {
  const int64_t v = model_->config().vocab_size;
  const MatrixView logits{logits_.data(), DType::kF32, hidden.rows, v, v};
  model_->head(hidden, logits);
  return logits;
}

int32_t SequenceRunner::sample(ConstMatrixView hidden, const ops::SamplingRow& row) {
  const MatrixView logits = head(hidden.row_range(hidden.rows - 1, 1));
  backend_->copy_to_device(sampling_.data(), &row, sizeof row);
  auto* const id = reinterpret_cast<int32_t*>(sampling_.data() + sizeof row);
  model_->sample(logits, reinterpret_cast<const ops::SamplingRow*>(sampling_.data()), id);
  int32_t token = 0;
  backend_->copy_to_host(&token, id, sizeof token);
  return token;
}

MatrixView SequenceRunner::mtp(int sequence, int64_t position, std::span<const int32_t> next_ids, ConstMatrixView hidden,
                               Observer* observer, const ops::Selection& selection, bool choose) {
  const ops::SequenceRows rows{0, static_cast<int32_t>(next_ids.size()), static_cast<int32_t>(position), sequence, 0};
  const MatrixView out{hidden_.data(), model_->numerics().activation, hidden.rows, hidden.cols, hidden.cols};
  model_->mtp(upload({&rows, 1}, next_ids, observer), hidden, out, selection, choose);
  return out;
}

}  // namespace baton::model
