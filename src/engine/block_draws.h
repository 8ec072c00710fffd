// The draws of a cycle: logits, samples, and how many of a block count. With drafts, a draw is one sample of the target behind the anchor
// and one behind each draft, and a draft counts while it equals the sample in its place; or, where drafts were themselves sampled, while it
// is accepted by what it was drawn from (speculate/acceptance.h).
//
// Threads: one at a time.
#pragma once

#include <span>
#include <vector>

#include "engine/cycle_executor.h"
#include "engine/slot_constraints.h"
#include "engine/slot_sampling.h"
#include "model/glm5_next.h"
#include "model/host_sampling.h"
#include "speculate/acceptance.h"

namespace baton::engine {

struct BlockSource {
  int32_t slot;                     // whose sampling and constraint apply
  int32_t position;                 // of the first token
  ConstMatrixView hidden;           // a row for each token; none: nothing is drawn
  std::span<const int32_t> drafts;  // one less
  // What each draft was drawn from; none: drafts are guesses, and count while they equal. Only with a temperature.
  std::span<const speculate::Proposal> proposals{};
};

class BlockDraws {
 public:
  // Bytes for `rows` rows at once, of all blocks together; `proposals`: blocks may have some.
  static int64_t bytes(const model::Glm5Next& model, int64_t rows, bool proposals = false);
  // Draws ids below `vocabulary`.
  static Result<BlockDraws> create(model::Glm5Next& model, ops::Backend& backend, int64_t rows, int64_t vocabulary, bool proposals = false);

  // result: tokens, ends, drafted, logprobs, top and problems, block by block; constraints and sampling have been told what counts.
  void run(std::span<const BlockSource> blocks, SlotSampling& sampling, SlotConstraints& constraints, CycleResult& result);

  // With arrays of the host.
  void sample(const ops::SampleParams& params) { sampler_.sample(params); }
  // Room for other logits meanwhile, [rows, vocabulary of the model].
  MatrixView logits(int64_t rows) const;
  int64_t most_rows() const { return most_rows_; }
  int64_t vocabulary() const { return vocabulary_; }

 private:
  BlockDraws(model::Glm5Next& model, ops::Backend& backend, int64_t rows, int64_t vocabulary)
      : model_(&model), backend_(&backend), most_rows_(rows), vocabulary_(vocabulary), sampler_(model, backend) {}

  bool judge(std::span<const BlockSource> blocks);  // whether some draw has become another one
  void write_logprobs(MatrixView logits);

  model::Glm5Next* model_;
  ops::Backend* backend_;
  int64_t most_rows_;
  int64_t vocabulary_;
  model::HostSampling sampler_;
  Buffer hidden_, logits_;
  Buffer probabilities_;  // [rows, vocabulary]; empty without proposals
  std::vector<ops::SamplingRow> rows_;
  std::vector<int32_t> sampled_;
  std::vector<float> targets_;               // of a block's drafts
  std::vector<speculate::Chances> chances_;  // likewise
  std::vector<ops::SamplingRow> forcing_;
  std::vector<ops::LogitBias> forced_;
  std::vector<int32_t> before_, forced_ids_;
  std::vector<float> logprobs_;
  std::vector<ops::TokenLogprob> top_;
};

}  // namespace baton::engine
