#include "speculate/acceptance.h"

#include <algorithm>

#include "base/check.h"

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

}  // namespace baton::speculate
