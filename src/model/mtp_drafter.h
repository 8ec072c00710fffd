// Drafts with the model's own MTP layer, one token after the other (NEXTN, EAGLE with one candidate).
//
// Row t of the layer takes token t + 1 and the target's hidden vector of position t. Its rows of committed positions are made when these
// are committed; the last one gives the first draft, each further draft a row of its own output and of the token drafted before. The
// indexer chooses once, for the last committed row, and the drafted rows attend to that choice and to what is newer (index sharing).
#pragma once

#include <memory>
#include <vector>

#include "model/drafter.h"
#include "model/glm5_next.h"
#include "model/host_sampling.h"

namespace baton::model {

class MtpDrafter final : public Drafter {
 public:
  // Errors: the model has no MTP layer. `activation` and `context_tokens` as of the target that will be loaded.
  static Result<DrafterNeeds> needs_of(const Config& config, int32_t drafts, DType activation, int64_t context_tokens);
  // Of the target, which outlives it; drafts ids below `vocabulary`.
  static Result<std::unique_ptr<MtpDrafter>> create(Glm5Next& target, ops::Backend& backend, const DrafterNeeds& needs, int64_t vocabulary);

  const DrafterNeeds& needs() const override { return needs_; }
  int64_t weight_bytes() const override { return 0; }  // they are the target's
  int64_t workspace_bytes() const override { return hidden_.bytes() + selection_.bytes() + logits_.bytes() + arrays_.bytes(); }

  void commit(const CommitInput& input) override;
  void draft(const DraftInput& input, int32_t* ids, int64_t stride) override;

 private:
  MtpDrafter(Glm5Next& target, ops::Backend& backend, const DrafterNeeds& needs, int64_t vocabulary);

  // In a slot, behind drafter_slot_offset: what the last committed row leaves for the next draft.
  struct Seed {
    int64_t hidden, pools, count, tail_begin, bytes;
  };
  static Seed seed_layout(const Config& config, DType activation, int64_t max_pages);
  static int64_t pool_capacity(const Config& config, int64_t max_pages);
  ops::Selection selection(int64_t rows) const;
  MatrixView hidden(int64_t rows) const;
  // The tokens that follow the first n rows of hidden(), into sampled_; each sampling row's position is the token's.
  void sample(int64_t n);

  Glm5Next& target_;
  ops::Backend& backend_;
  DrafterNeeds needs_;
  int64_t vocabulary_;
  Seed seed_;
  Buffer hidden_;     // [max_rows, d]
  Buffer selection_;  // of max_rows rows
  Buffer logits_;     // [max_sequences, vocabulary of the model]
  Buffer arrays_;     // int32: ids | sequences | row_sequence | positions of a step
  HostSampling sampler_;
  std::vector<int32_t> staging_;
  std::vector<ops::SamplingRow> sampling_;
  std::vector<int32_t> sampled_;
};

}  // namespace baton::model
