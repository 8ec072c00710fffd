#include "speculate/acceptance.h"

#include <algorithm>

#include "base/check.h"
#include "base/random.h"

namespace baton::speculate {

int32_t count_of(std::span<const int32_t> drafts, std::span<const int32_t> drawn) {
  BATON_CHECK(drawn.size() == drafts.size() + 1);
  size_t i = 0;
  while (i < drafts.size() && drawn[i] >= 0 && drawn[i] == drafts[i]) ++i;
  return static_cast<int32_t>(i) + 1;
}

Verdict judge(std::span<const float> target, const Proposal& proposal, int32_t draft, double accept, double redraw) {
  const auto proposed = [&proposal](int32_t token) {
    const auto at = std::find(proposal.tokens.begin(), proposal.tokens.end(), token);
    return at == proposal.tokens.end() ? 0.0 : double{proposal.probabilities[static_cast<size_t>(at - proposal.tokens.begin())]};
  };
  const double p = target[static_cast<size_t>(draft)];
  if (accept * proposed(draft) < p) return {true, draft};

  // In one pass over the vocabulary for the sum and one for the draw, in the order of the tokens: the same everywhere.
  const auto excess = [&](size_t token) { return std::max(double{target[token]} - proposed(static_cast<int32_t>(token)), 0.0); };
  double sum = 0;
  for (size_t t = 0; t < target.size(); ++t) sum += excess(t);
  // Rounding alone can leave nothing: then p and q are the same distribution, and any draw from p will do.
  const bool same = sum <= 0;
  double left = redraw * (same ? 1.0 : sum);
  int32_t last = draft;
  for (size_t t = 0; t < target.size(); ++t) {
    const double weight = same ? double{target[t]} : excess(t);
    if (weight <= 0) continue;
    last = static_cast<int32_t>(t);
    left -= weight;
    if (left < 0) break;
  }
  return {false, last};
}

Chances chances_of(uint64_t seed, int32_t position) {
  constexpr uint32_t kStream = 2;  // 0 is the target's noise, 1 that of what is proposed
  constexpr double kUnit = 0x1p-53;
  const PhiloxBlock b = philox(seed, {0, static_cast<uint32_t>(position), kStream, 0});
  const auto uniform = [](uint32_t low, uint32_t high) { return static_cast<double>((uint64_t{high} << 32U | low) >> 11U) * kUnit; };
  return {uniform(b[0], b[1]), uniform(b[2], b[3])};
}

void judge_block(std::span<const int32_t> drafts, std::span<const Proposal> proposals, std::span<const float> targets,
                 std::span<const Chances> chances, std::span<int32_t> drawn) {
  BATON_CHECK(proposals.size() == drafts.size() && chances.size() == drafts.size() && drawn.size() == drafts.size() + 1);
  if (drafts.empty()) return;
  const size_t vocabulary = targets.size() / drafts.size();
  for (size_t i = 0; i < drafts.size() && drawn[i] >= 0; ++i) {
    const auto target = targets.subspan(i * vocabulary, vocabulary);
    drawn[i] = judge(target, proposals[i], drafts[i], chances[i].accept, chances[i].redraw).token;
    if (drawn[i] != drafts[i]) return;
  }
}

}  // namespace baton::speculate
