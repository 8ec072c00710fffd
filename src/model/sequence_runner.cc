#include "model/sequence_runner.h"

#include <cstring>

namespace baton::model {

Result<SequenceRunner> SequenceRunner::create(Glm5Next& model, ops::Backend& backend, int sequences, int64_t max_tokens, int64_t max_rows) {
  const int64_t pages = (max_tokens + ops::kPageTokens - 1) / ops::kPageTokens;
  SequenceRunner r(model, backend, sequences, pages, max_rows);
  const Config& config = model.config();
  const int64_t element = dtype_bytes(model.numerics().activation);
  BATON_ASSIGN(r.pages_, backend.allocate(pages * sequences * model.cache_layout().page_bytes));
  BATON_ASSIGN(r.slots_, backend.allocate(sequences * model.cache_layout().slot_bytes));
  const int64_t input_ints = 3 * max_rows + sequences * (static_cast<int64_t>(sizeof(ops::SequenceRows)) / 4 + pages);
  BATON_ASSIGN(r.inputs_, backend.allocate(input_ints * 4));
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

ForwardInput SequenceRunner::upload(std::span<const ops::SequenceRows> sequences, std::span<const int> owners, std::span<const int32_t> ids,
                                    Observer* observer) {
  const size_t m = ids.size();
  const size_t n = sequences.size();
  BATON_CHECK_MSG(static_cast<int64_t>(m) <= max_rows_, "{} rows, planned for {}", m, max_rows_);
  const size_t header = sizeof(ops::SequenceRows) / 4;
  const auto pages = static_cast<size_t>(pages_per_sequence_);
  staging_.assign(3 * m + n * (header + pages), 0);
  int32_t* const begin = staging_.data();
  int32_t* const owner = begin + m + n * header;
  int32_t* const position = owner + m;
  int32_t* const tables = position + m;
  std::memcpy(begin, ids.data(), m * 4);
  std::memcpy(begin + m, sequences.data(), n * sizeof(ops::SequenceRows));
  for (size_t q = 0; q < n; ++q) {
    for (int32_t i = 0; i < sequences[q].row_count; ++i) {
      owner[sequences[q].row_begin + i] = static_cast<int32_t>(q);
      position[sequences[q].row_begin + i] = sequences[q].position + i;
    }
    BATON_CHECK_MSG(sequences[q].position + sequences[q].row_count <= pages_per_sequence_ * ops::kPageTokens,
                    "a sequence outgrows its pages");
    for (size_t p = 0; p < pages; ++p) tables[q * pages + p] = page_id(owners[q], static_cast<int64_t>(p));
  }
  backend_->copy_to_device(inputs_.data(), begin, static_cast<int64_t>(staging_.size()) * 4);

  const auto* device = reinterpret_cast<const int32_t*>(inputs_.data());
  ForwardInput input;
  input.ids = device;
  input.rows.batch.sequences = reinterpret_cast<const ops::SequenceRows*>(device + m);
  input.rows.batch.sequence_count = static_cast<int32_t>(n);
  input.rows.batch.row_count = static_cast<int32_t>(m);
  input.rows.batch.row_sequence = device + (owner - begin);
  input.rows.batch.positions = device + (position - begin);
  input.rows.batch.page_tables = device + (tables - begin);
  input.rows.batch.page_table_stride = static_cast<int32_t>(pages);
  input.rows.pages = this->pages();
  input.rows.slots = slots();
  input.rows.observer = observer;
  return input;
}

MatrixView SequenceRunner::forward(std::span<const Rows> rows, Observer* observer) {
  std::vector<ops::SequenceRows> sequences;
  std::vector<int> owners;
  std::vector<int32_t> ids;
  for (const Rows& r : rows) {
    sequences.push_back({static_cast<int32_t>(ids.size()), static_cast<int32_t>(r.ids.size()), static_cast<int32_t>(position(r.sequence)),
                         r.sequence, r.verify ? 1 : 0});
    owners.push_back(r.sequence);
    ids.insert(ids.end(), r.ids.begin(), r.ids.end());
    if (!r.verify) positions_[static_cast<size_t>(r.sequence)] += static_cast<int64_t>(r.ids.size());
  }
  const int64_t d = model_->config().hidden_size;
  const MatrixView hidden{hidden_.data(), model_->numerics().activation, static_cast<int64_t>(ids.size()), d, d};
  model_->forward(upload(sequences, owners, ids, observer), hidden);
  return hidden;
}

void SequenceRunner::accept(int sequence, int32_t count) {
  const int32_t arrays[2] = {sequence, count};
  backend_->copy_to_device(inputs_.data(), arrays, sizeof arrays);
  const auto* device = reinterpret_cast<const int32_t*>(inputs_.data());
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
  model_->mtp(upload({&rows, 1}, {&sequence, 1}, next_ids, observer), hidden, out, selection, choose);
  return out;
}

}  // namespace baton::model
