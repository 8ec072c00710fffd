// Collects what a golden folder records: an observer of forward passes, and readers of the caches that they leave behind.
#pragma once

#include <map>
#include <span>
#include <utility>
#include <vector>

#include "model/config.h"
#include "model/observer.h"
#include "model/sequence_runner.h"

namespace baton::golden {

// Appends rows of any float type.
void append_rows(ConstMatrixView view, std::vector<float>& out);
// The rows at these positions of [n, width].
std::vector<float> pick(const std::vector<float>& rows, const std::vector<int32_t>& positions, int64_t width);

// One sequence over one or several launches.
class Recorder final : public model::Observer {
 public:
  Recorder(const model::Config& config, int64_t rows);
  void begin_launch(int64_t first_position, int64_t rows) {
    first_ = first_position;
    rows_ = rows;
  }

  void on_streams(int64_t layers_done, ConstMatrixView streams) override;
  void on_selection(int64_t layer, const ops::Selection& selection, int64_t rows) override;
  void on_experts(int64_t layer, const ops::ExpertAssignment& experts, int64_t rows) override;

  const std::vector<float>& streams(int64_t layers_done) const { return streams_.at(layers_done); }
  // Tokens that a position attends to, ascending.
  std::vector<int32_t> selection(int64_t layer, int64_t position) const;
  // Experts and weights of a position, by descending weight.
  std::pair<std::vector<int32_t>, std::vector<float>> experts(int64_t layer, int64_t position) const;

 private:
  using Key = std::pair<int64_t, int64_t>;  // layer, position
  const model::Config& config_;
  int64_t first_ = 0;
  int64_t rows_ = 0;
  std::map<int64_t, std::vector<float>> streams_;
  std::map<Key, std::vector<int32_t>> selections_;
  std::map<Key, std::pair<std::vector<int32_t>, std::vector<float>>> experts_;
};

struct KdaCache {
  std::vector<float> state;   // [heads, key, value]
  std::vector<float> window;  // [3, 3 heads dim]
};
KdaCache read_kda(model::SequenceRunner& runner, int sequence, size_t kda_layer);
// [pools, dim]
std::vector<float> read_pooled(model::SequenceRunner& runner, int sequence, size_t sparse_layer, const std::vector<int32_t>& pools);
// [n mod pool, 2, dim]: key and gate of the open pool of n tokens
std::vector<float> read_tail(model::SequenceRunner& runner, int sequence, size_t sparse_layer, int64_t n);

// Host memory of a Selection (the CPU backend reads it directly).
class OwnedSelection {
 public:
  OwnedSelection(const model::Config& config, ops::Backend& backend, int64_t rows);
  ops::Selection view();
  // Row r becomes row 0.
  void keep_row(int64_t r);

 private:
  int64_t capacity_;
  int64_t rows_;
  Buffer memory_;  // pools | counts | first positions of tails
};

}  // namespace baton::golden
