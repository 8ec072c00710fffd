// How sure a share of right answers is, and whether two differ.
#pragma once

#include <cstdint>

namespace baton::evaluate {

struct Interval {
  double low = 0, high = 1;
};

// Wilson's 95 % interval of a share: `right` of `count`. The whole range where nothing was counted.
Interval wilson(int64_t right, int64_t count);

// McNemar's exact test, two-sided: how likely it is that questions on which two results differ fall at least as unevenly as `only_first`
// against `only_second`, if neither were better. 1 where they never differ.
double mcnemar(int64_t only_first, int64_t only_second);

}  // namespace baton::evaluate
