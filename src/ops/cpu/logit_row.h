// Passes over one row of logits: the peak, the k most likely tokens, and a walk over what reaches a bound.
// Logits may be -inf, and where a comment does not say otherwise +inf; they are never NaN except in find_peak.
#pragma once

#include <cstdint>

namespace baton::cpu {

struct Peak {
  int32_t token;  // the largest logit, ties to the lower id
  float logit;
  bool finite;  // every logit of the row is
};

// n >= 1. With NaN in the row only `finite` means something.
Peak find_peak(const float* logits, int64_t n);

struct Candidate {
  float logit;
  int32_t token;
};

// The order of likelihood: a total one, so that the k first are the same set by whatever way they are found.
inline bool more_likely(const Candidate& a, const Candidate& b) { return a.logit != b.logit ? a.logit > b.logit : a.token < b.token; }

// The k most likely tokens of those that are not -inf, into `out` [n, of which all may be scratch]. Returns how many there are: k or fewer.
// The last one is the least likely; the others stand in no order.
int64_t most_likely(const float* logits, int64_t n, int64_t k, Candidate* out);

// fn(column) for logits >= bound, in ascending order. `fn` may raise the bound that it was given; what it raised it above may still come.
// Blocks without such a column cost a few vector comparisons, which is nearly all of a vocabulary for nearly any bound.
template <class Fn>
void for_each_reaching(const float* logits, int64_t n, const float& bound, const Fn& fn) {
  constexpr int64_t kBlock = 32;
  int64_t i = 0;
  for (; i + kBlock <= n; i += kBlock) {
    int32_t any = 0;
    for (int64_t j = 0; j < kBlock; ++j) any |= static_cast<int32_t>(logits[i + j] >= bound);
    if (any == 0) continue;
    for (int64_t j = i; j < i + kBlock; ++j)
      if (logits[j] >= bound) fn(j);
  }
  for (; i < n; ++i)
    if (logits[i] >= bound) fn(i);
}

}  // namespace baton::cpu
