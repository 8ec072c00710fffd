// Cycles of a model at any context without the cost of computing that context: a prompt of a few pages is computed once, and the pages of
// every sequence are copies of its pages, every slot a copy of its slot.
//
// What is measured on such caches is true in time and bytes: every page and slot has its own memory, rows choose among all pools of the
// context. What they choose is not what a real context would make them choose, since its pages repeat.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "model/glm5_next.h"
#include "model/launch_rows.h"

namespace baton::meter {

struct CycleShape {
  int32_t sequences = 1;
  int32_t rows = 1;      // of each sequence
  int64_t context = 0;   // tokens before the rows
  bool verify = false;   // rows may be rejected: they feed the replay rings
  int32_t accepted = 0;  // with verify: rows that the next cycle folds, at most `rows`
  bool head = true;      // logits and a draw: for every row with verify, else for the last one of each sequence
  uint64_t seed = 1;     // of the rows' ids
};

// Tokens that are computed, at most: the pages of the context repeat those of these.
inline constexpr int64_t kSeedTokens = 1024;

class SyntheticCycle {
 public:
  // Model options that allow such cycles; `options` has all else.
  static model::ModelOptions allow(model::ModelOptions options, const CycleShape& shape);

  // Allocates caches and fills them. The model's options allow the shape.
  static Result<std::unique_ptr<SyntheticCycle>> create(model::Glm5Next& model, ops::Backend& backend, const CycleShape& shape);

  // Runs one cycle, the same one each time: rows at the same place again. Returns when the device has been given all of it.
  void run();

  // Final hidden rows of the last cycle, on the device.
  MatrixView output() const { return hidden(int64_t{shape_.sequences} * shape_.rows); }
  int64_t page_bytes() const { return pages_.bytes(); }
  int64_t slot_bytes() const { return slots_.bytes(); }

 private:
  SyntheticCycle(model::Glm5Next& model, ops::Backend& backend, const CycleShape& shape);

  void compute_seed();
  void spread();
  model::ForwardInput upload(std::span<const ops::SequenceRows> sequences, std::span<const int32_t> ids);
  int64_t most_rows() const { return model_.options().max_rows; }
  MatrixView hidden(int64_t rows) const;

  model::Glm5Next& model_;
  ops::Backend& backend_;
  const CycleShape shape_;
  const int64_t seed_tokens_;
  const int64_t pages_each_;
  Buffer pages_, slots_;
  std::vector<std::vector<int32_t>> tables_;  // by sequence: page i of q is page q * pages_each_ + i
  std::optional<model::LaunchRowsBuffer> inputs_;
  Buffer folds_;     // slots | counts
  Buffer hidden_;    // of all rows
  Buffer drawn_;     // hidden rows that are drawn from, where these are not all
  Buffer logits_;    // of these
  Buffer sampling_;  // how they are drawn | what was drawn
  model::ForwardInput input_;
};

}  // namespace baton::meter
