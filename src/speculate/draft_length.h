// How many tokens to draft for a sequence: the number that is worth most tokens per time, from how its drafts have fared and from what
// cycles have taken. The text does not depend on it.
//
// Threads: none; one at a time.
#pragma once

#include <array>
#include <cstdint>

#include "speculate/metrics.h"

namespace baton::speculate {

// What a cycle takes: base + per_draft * (drafts of all its sequences). A straight line through what recent cycles have taken.
class CycleCosts {
 public:
  // A cycle of `sequences` decoding sequences with `drafts` drafts together; cycles that also run prompts are not told.
  void observe(int64_t sequences, int64_t drafts, double seconds);

  // Of one sequence: its share of the base, and what a draft more takes. Until it has seen cycles that differ, a draft is taken to cost an
  // eighth of a row without any.
  double share() const;
  double per_draft() const;
  bool known() const { return weight_ > 0; }

 private:
  // Sums of decaying weights, of drafts and seconds by sequence.
  double weight_ = 0, x_ = 0, y_ = 0, xx_ = 0, xy_ = 0;
};

class DraftLength {
 public:
  // `accepted` of `drafted` drafts were right.
  void observe(int32_t drafted, int32_t accepted);

  // The best number of drafts up to `most`; `most` itself as long as costs are not known.
  int32_t best(const CycleCosts& costs, int32_t most) const;

 private:
  // By place: how often a draft was looked at, all before it being right, and how often it was right; old blocks count less and less, so
  // that what a text was like a while ago is forgotten, and a place that is not drafted any more gets another try.
  struct Place {
    double seen = 0, right = 0;
    double rate() const { return (right + 1.6) / (seen + 2); }
  };
  std::array<Place, kMostDrafts> places_;
};

}  // namespace baton::speculate
