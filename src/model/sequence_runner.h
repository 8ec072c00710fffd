// The simplest owner of caches: a fixed number of sequences, each with its own pages and its own slot. It serves tests, golden data and
// single-prompt generation; an engine replaces it where requests come and go.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "model/glm5_next.h"
#include "model/launch_rows.h"

namespace baton::model {

class SequenceRunner {
 public:
  // Caches for `sequences` sequences of at most `max_tokens` tokens; launches of at most `max_rows` rows. The model's options must allow
  // both.
  static Result<SequenceRunner> create(Glm5Next& model, ops::Backend& backend, int sequences, int64_t max_tokens, int64_t max_rows);

  struct Rows {
    int sequence = 0;
    std::span<const int32_t> ids;
    bool verify = false;  // rows may be rejected: call accept() before the next forward of this sequence
  };

  // Runs the rows behind what each sequence holds; sequences must be distinct. Returns final hidden rows [rows, d], valid until the next
  // call.
  MatrixView forward(std::span<const Rows> rows, Observer* observer = nullptr);

  // Keeps the first `count` rows of the sequence's last verify, and folds them into its state.
  void accept(int sequence, int32_t count);

  // Logits [n, vocabulary] of hidden rows in host memory, valid until the next call.
  MatrixView head(ConstMatrixView hidden);

  // The token of the last row of `hidden`.
  int32_t sample(ConstMatrixView hidden, const ops::SamplingRow& row);

  // MTP rows of one sequence, starting at its row `position`; see Glm5Next::mtp.
  MatrixView mtp(int sequence, int64_t position, std::span<const int32_t> next_ids, ConstMatrixView hidden, Observer* observer,
                 const ops::Selection& selection, bool choose);

  int64_t position(int sequence) const { return positions_[static_cast<size_t>(sequence)]; }
  void reset(int sequence);

  Glm5Next& model() { return *model_; }
  ops::Backend& backend() { return *backend_; }
  ops::PagePoolView pages() const { return {pages_.data(), model_->cache_layout().page_bytes}; }
  ops::SlotPoolView slots() const { return {slots_.data(), model_->cache_layout().slot_bytes}; }
  int32_t page_id(int sequence, int64_t index) const;
  int64_t cache_bytes() const { return pages_.bytes() + slots_.bytes(); }

 private:
  SequenceRunner(Glm5Next& model, ops::Backend& backend, int sequences, int64_t max_rows)
      : model_(&model), backend_(&backend), sequences_(sequences), max_rows_(max_rows), positions_(static_cast<size_t>(sequences)),
        tables_(static_cast<size_t>(sequences)) {}

  ForwardInput upload(std::span<const ops::SequenceRows> sequences, std::span<const int32_t> ids, Observer* observer);

  Glm5Next* model_;
  ops::Backend* backend_;
  int sequences_;
  int64_t max_rows_;
  std::vector<int64_t> positions_;
  std::vector<std::vector<int32_t>> tables_;  // pages, by sequence
  Buffer pages_;
  Buffer slots_;
  std::optional<LaunchRowsBuffer> inputs_;
  Buffer fold_;  // slot | count
  Buffer hidden_;
  Buffer logits_;
  Buffer sampling_;
};

}  // namespace baton::model
