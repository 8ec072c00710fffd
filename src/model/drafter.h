// The seam through which an engine drafts: a drafter guesses the tokens behind a sequence, the target's verify pass says how many were
// right.
//
// Per cycle, in this order:
//   draft   for every sequence that is to draft: the tokens that may follow its anchor, its newest token, which has no row yet
//   (verify, acceptance: the target and the engine)
//   commit  for every row that has become final, each once and in order, of prompts and of generated tokens alike
//
// A drafter keeps nothing between calls but in its bytes of pages and slots, which the target's CacheLayout reserves for it. So restoring,
// forking, retracting and transferring a sequence are copies of bytes that nobody need understand, and rejected rows leave nothing behind:
// what draft() writes for positions that are not committed, commit() writes again.
// What it drafts for a sequence depends on that sequence's tokens alone: not on the batch, on how rows were cut into calls, or on what was
// drafted before.
//
// Threads: one at a time, never beside the target.
#pragma once

#include <cstdint>
#include <span>

#include "model/drafter_needs.h"
#include "model/sublayers.h"
#include "ops/head.h"

namespace baton::model {

// Device arrays, as for a forward pass; `sequences` is the host's copy of rows.batch.sequences. Slots are distinct.
struct CommitInput {
  std::span<const ops::SequenceRows> sequences;
  LaunchRows rows;
  const int32_t* next_ids = nullptr;  // [rows] the token behind each row's position
  ConstMatrixView hidden;             // [rows, d] as Glm5Next::forward gave it for these rows
  ConstMatrixView features;           // [rows, feature_layers * d], likewise; layers side by side
};

// What drafts are drawn from, in host memory: `top` candidates each, [sequences, stride, top] with the stride of the drafts; candidates
// that there are not are -1, with probability 0.
struct DraftProposals {
  int32_t* tokens = nullptr;
  float* probabilities = nullptr;
};

struct DraftInput {
  std::span<const ops::SequenceRows> sequences;  // one row each, at the anchor's position
  LaunchRows rows;                               // page tables reach behind the last drafted position
  const int32_t* anchors = nullptr;              // [sequences]
  std::span<const int32_t> counts;               // [sequences], host: how many to draft, 1 ... most_drafts; falling
  // [sequences], host: how the target will draw the first drafted position; the following ones likewise. It draws with noise that is keyed
  // by seed, position and column, so a drafter that draws with the same noise agrees more often than one that takes the most likely token.
  std::span<const ops::SamplingRow> sampling;
  // Where drafts are to be judged by what they were drawn from (speculate/acceptance.h): out. They are then drawn with noise that tells
  // nothing of the target's. Null: they are guesses, as above.
  const DraftProposals* proposals = nullptr;
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  virtual const DrafterNeeds& needs() const = 0;
  // Weights, and scratch beside the target's.
  virtual int64_t weight_bytes() const = 0;
  virtual int64_t workspace_bytes() const = 0;
  // Candidates of a draft, where it can say what it draws from; 0: it cannot.
  virtual int32_t proposal_tokens() const { return 0; }

  virtual void commit(const CommitInput& input) = 0;
  // ids [sequences, stride] in host memory: counts[i] tokens of row i are written, all of the vocabulary; a negative one says that
  // nothing is drafted from there on. Every sequence has committed a row since its slot was cleared or restored. A wrong token costs time
  // and nothing else.
  virtual void draft(const DraftInput& input, int32_t* ids, int64_t stride) = 0;
};

}  // namespace baton::model
