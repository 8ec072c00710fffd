// What top_k, top_p and min_p leave of a row of logits. All three keep whole ties, so that what they keep is what reaches one bound.
#pragma once

#include "ops/cpu/logit_row.h"
#include "ops/head.h"

namespace baton::cpu {

inline constexpr int64_t kFilterBuckets = 4096;

struct FilterScratch {
  Candidate* candidates;  // [n]
  double* masses;         // [kFilterBuckets]
};

// The least logit that the row's filters keep; -inf if they keep all. logits [n], none +inf, with the given peak, which is finite.
float least_kept(const float* logits, int64_t n, const Peak& peak, const ops::SamplingRow& row, const FilterScratch& scratch);

}  // namespace baton::cpu
