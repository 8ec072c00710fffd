// Which drafted tokens count: the specification that device kernels are tested against.
//
// The target runs a row for the anchor (the newest token) and one for every draft, and draws from each: drawn[i] is what follows the anchor
// and the first i drafts. Every filter, penalty and mask has been applied to the distribution that it was drawn from.
//
// Threads: none; functions of their arguments.
#pragma once

#include <cstdint>
#include <span>

namespace baton::speculate {

// By default there is one sample of the target per position, keyed by (seed, position, column), and a draft is accepted while it equals the
// sample: the text is then the same as without drafts, token for token, sampled or not.
// How many of `drawn` count: the accepted drafts, and the target's own token behind them. A negative draw (nothing could be drawn) is the
// last one that counts. `drawn` has one entry more than `drafts`; at least 1.
int32_t count_of(std::span<const int32_t> drafts, std::span<const int32_t> drawn);

// Where drafts are themselves sampled, they may be accepted with a probability instead, and the text is another one of the same
// distribution. `tokens` are distinct, `probabilities` sum to 1: what the draft was drawn from.
struct Proposal {
  std::span<const int32_t> tokens;
  std::span<const float> probabilities;
};
struct Verdict {
  bool accepted;
  int32_t token;  // the draft, or what is drawn instead of it
};

// Accepts with min(1, p / q); otherwise draws from what p has more than q, p - q where that is positive. `target`: p by token, sums to 1.
// `accept`, `redraw`: independent and uniform in [0, 1).
Verdict judge(std::span<const float> target, const Proposal& proposal, int32_t draft, double accept, double redraw);

// Both uniforms of a place, which nothing else draws from.
struct Chances {
  double accept, redraw;
};
Chances chances_of(uint64_t seed, int32_t position);

// A block of such drafts, drafts[i] of proposals[i], judged by targets [drafts, vocabulary]. `drawn`, one entry more: what the target draws
// by itself; where a draft is judged its entry becomes the verdict, so that count_of() tells how many count. Nothing is judged behind a
// draft that is not accepted, or where nothing could be drawn.
void judge_block(std::span<const int32_t> drafts, std::span<const Proposal> proposals, std::span<const float> targets,
                 std::span<const Chances> chances, std::span<int32_t> drawn);

}  // namespace baton::speculate
