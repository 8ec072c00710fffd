// glm5_next on one device: the decoder and its MTP layer over the op table. Knows nothing of requests; caches come in as views.
//
// Threads: one at a time; the backend parallelises inside ops.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "model/cache_layout.h"
#include "model/checkpoint.h"
#include "model/sublayers.h"
#include "model/weights.h"

namespace baton::model {

struct ModelOptions {
  Numerics numerics;
  CacheTypes cache;
  DrafterNeeds drafter;
  int64_t max_rows = 0;         // rows of one launch
  int64_t max_logits_rows = 0;  // rows of one head() and sample()
  int64_t max_sequences = 0;    // sequences of one launch
  int64_t max_pages = 0;        // pages of one sequence
  WeightOptions loading;
};

// Device arrays of one launch.
struct ForwardInput {
  const int32_t* ids = nullptr;  // [rows]; MTP: the token after each row's position
  LaunchRows rows;
};

class Glm5Next {
 public:
  static Result<std::unique_ptr<Glm5Next>> load(const Checkpoint& checkpoint, ops::Backend& backend, const ModelOptions& options);

  const Config& config() const { return config_; }
  const CacheLayout& cache_layout() const { return layout_; }
  const Numerics& numerics() const { return options_.numerics; }
  const ModelOptions& options() const { return options_; }
  int64_t weight_bytes() const { return weights_.memory.bytes(); }
  int64_t workspace_bytes() const { return workspace_.bytes(); }

  // hidden [rows, d] <- RMSNorm of the stream mean: what enters the head (and the MTP layer).
  // features [rows, feature_layers * d] <- the means of the streams behind the layers that the drafter named, side by side; empty: left
  // out.
  void forward(const ForwardInput& input, MatrixView hidden, MatrixView features = {});

  // x [n, d] <- rows of the embedding. `ids`: device array.
  void embed(const int32_t* ids, MatrixView x);

  // logits [n, vocabulary] kF32 of hidden rows [n, d].
  void head(ConstMatrixView hidden, MatrixView logits);

  // One pass of the MTP layer: row t takes token t + 1 and the hidden vector of position t (or, when drafting, its own previous output).
  // out [rows, d]: post-norm vectors, the input of the head and of the next draft step.
  //   selection, choose true:  receives each row's choice (arrays of rows entries)
  //   selection, choose false: attended to as it is; keys and pools are still written (index_share_for_mtp_iteration)
  void mtp(const ForwardInput& input, ConstMatrixView hidden, MatrixView out, const ops::Selection& selection, bool choose);

  // Commits the first counts[i] ring rows of the slots (ReplaySSM), all KDA layers.
  void fold(const int32_t* slot_ids, const int32_t* counts, int32_t count, ops::SlotPoolView slots);

  // Makes the states of these slots true: folds what their fold counts say, and sets these to 0. `slot_ids`: host array, distinct, at most
  // max_sequences. Waits for the device where a count is to be read.
  void materialise(std::span<const int32_t> slot_ids, ops::SlotPoolView slots);

  // Log-probabilities and the like: see ops/head.h.
  void sample(const ops::SampleParams& params);
  void sample(ConstMatrixView logits, const ops::SamplingRow* rows, int32_t* ids);

 private:
  Glm5Next(Config config, ops::Backend& backend, const ModelOptions& options)
      : config_(std::move(config)), backend_(backend), options_(options) {}

  void plan(Launcher& planner) const;
  Launcher launcher() { return {backend_, workspace_.data(), workspace_.bytes()}; }
  void run_forward(Launcher& launcher, const ForwardInput& input, MatrixView hidden, MatrixView features) const;
  void run_mtp(Launcher& launcher, const ForwardInput& input, ConstMatrixView hidden, MatrixView out, ops::Selection selection,
               bool choose) const;

  Config config_;
  ops::Backend& backend_;
  ModelOptions options_;
  CacheLayout layout_;
  Weights weights_;
  Buffer workspace_;
  Buffer fold_arguments_;              // int32 ids [max_sequences] | counts [max_sequences]
  std::vector<int32_t> fold_staging_;  // likewise, of the host
};

}  // namespace baton::model
