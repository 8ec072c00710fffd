// The DFlash2 drafter over the op table: a few layers of its own that propose a whole block in one pass.
//
// What it knows of committed tokens are projections of the target's features: a window of keys and values per layer, in the slot. The
// block is [newest token, MASK x drafts]; embedding and head are the target's. Each position's most likely tokens are candidates, and a
// path is walked through them with what the selector knows of neighbours.
#pragma once

#include <memory>
#include <vector>

#include "model/dflash2_checkpoint.h"
#include "model/drafter.h"
#include "model/glm5_next.h"

namespace baton::model {

// From configurations alone: what ModelOptions::drafter of the target must say; it may draft less. `activation` as of the target.
DrafterNeeds dflash2_needs(const DFlash2Config& config, DType activation);

struct DFlash2Options {
  int64_t max_rows = 0;       // of one commit()
  int64_t max_sequences = 0;  // of one draft()
  int64_t vocabulary = 0;     // ids below are drafted
  int threads = 1;            // that read the checkpoint
};

class DFlash2Drafter final : public Drafter {
 public:
  // Refuses a drafter of another target. `target` was loaded with these needs and outlives the drafter.
  static Result<std::unique_ptr<DFlash2Drafter>> load(const DFlash2Checkpoint& checkpoint, Glm5Next& target, ops::Backend& backend,
                                                      const DFlash2Options& options);

  const DrafterNeeds& needs() const override { return needs_; }
  int64_t weight_bytes() const override { return weights_.memory.bytes(); }
  int64_t workspace_bytes() const override { return workspace_.bytes() + inputs_.bytes() + logits_.bytes(); }
  int32_t proposal_tokens() const override { return static_cast<int32_t>(config_.selector_top_k); }
  void commit(const CommitInput& input) override;
  void draft(const DraftInput& input, int32_t* ids, int64_t stride) override;

  const DFlash2Config& config() const { return config_; }
  // [sequences * block, d] of the last draft(), until the next call: what enters head and selector. For tests.
  ConstMatrixView last_hidden() const { return last_hidden_; }

 private:
  struct ConvWeights {
    const float* base = nullptr;  // [2 sides, 2 taps, d]
    ops::WeightView projection;   // [2 sides * 2 taps * groups, d]
  };
  struct LayerWeights {
    const float* input_norm = nullptr;
    const float* post_norm = nullptr;
    const float* q_norm = nullptr;
    const float* k_norm = nullptr;
    ops::WeightView q, k, v, o, gate, up, down;
    ConvWeights attention_conv, mlp_conv;
  };
  struct Weights {
    ops::WeightView fc;
    const float* feature_norm = nullptr;
    std::vector<LayerWeights> layers;
    const float* final_norm = nullptr;
    ConstMatrixView predecessor, successor;  // [vocabulary, rank] row-major
    ops::WeightView path_projection;         // [rank, d]
    Buffer memory;
  };
  // The rows of the blocks of one draft().
  struct Block {
    const int32_t* ids = nullptr;  // [m]
    ops::BatchView batch;
    const int32_t* anchors = nullptr;         // [sequences]
    const ops::DraftPathRow* rows = nullptr;  // [sequences]
    int32_t* drafts = nullptr;                // [sequences, steps] out
    int32_t* candidates = nullptr;            // [sequences, steps, selector_top_k] out; null: not asked for
    float* probabilities = nullptr;           // likewise
    int64_t steps = 0;                        // drafts of each that are wanted
  };

  DFlash2Drafter(const DFlash2Config& config, Glm5Next& target, ops::Backend& backend, const DFlash2Options& options)
      : config_(config), options_(options), target_(target), backend_(backend) {}

  class Loader;
  ops::WindowLayout window(int64_t layer) const;
  int64_t input_bytes() const;
  int64_t blocks_per_head() const;  // sequences whose logits are computed at once
  Launcher launcher() { return {backend_, workspace_.data(), workspace_.bytes()}; }
  Block stage(const DraftInput& input);
  void run_commit(Launcher& launcher, const LaunchRows& rows, ConstMatrixView features) const;
  void run_block(Launcher& launcher, const Block& block, ops::SlotPoolView slots);
  // y = conv(x; side) with taps that `dynamic` gives.
  void convolve(Launcher& launcher, const ConvWeights& w, int64_t side, ConstMatrixView x, ConstMatrixView dynamic, MatrixView y) const;
  void run_paths(Launcher& launcher, const Block& block, ConstMatrixView hidden);
  void hand_over(const Block& block, const DraftInput& input, int32_t* ids, int64_t stride);

  DFlash2Config config_;
  DFlash2Options options_;
  Glm5Next& target_;
  ops::Backend& backend_;
  DrafterNeeds needs_;
  int64_t window_stride_ = 0;  // bytes between the windows of layers
  Weights weights_;
  Buffer workspace_;
  Buffer inputs_;  // what stage() uploads, and the drafts
  Buffer logits_;
  std::vector<std::byte> staging_;
  std::vector<int32_t> drafted_;
  std::vector<int32_t> candidates_;
  std::vector<float> probabilities_;
  ConstMatrixView last_hidden_;
};

}  // namespace baton::model
