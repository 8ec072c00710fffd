#include "ops/cpu/logit_row.h"

#include <algorithm>
#include <cmath>

namespace baton::cpu {
namespace {

// The largest of `count` logits, and 0 added to `poison` for each finite one, NaN for each other. The lanes map to vector registers.
float block_peak(const float* x, int64_t count, float& poison) {
  constexpr int64_t kLanes = 32;
  float largest[kLanes];
  float sums[kLanes] = {};
  std::fill_n(largest, kLanes, -INFINITY);
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) {
      largest[j] = x[i + j] > largest[j] ? x[i + j] : largest[j];
      sums[j] += x[i + j] * 0.0F;
    }
  for (int64_t j = 0; i < count; ++i, ++j) {
    largest[j] = x[i] > largest[j] ? x[i] : largest[j];
    sums[j] += x[i] * 0.0F;
  }
  for (const float s : sums) poison += s;
  return *std::max_element(largest, largest + kLanes);
}

}  // namespace

Peak find_peak(const float* logits, int64_t n) {
  constexpr int64_t kBlock = 2048;  // is still in the first-level cache when the column is looked up
  Peak peak{0, -INFINITY, true};
  float poison = 0;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = std::min(kBlock, n - begin);
    const float largest = block_peak(logits + begin, count, poison);
    if (largest > peak.logit) {
      const float* const at = std::find(logits + begin, logits + begin + count, largest);
      peak = {static_cast<int32_t>(at - logits), largest, true};
    }
  }
  peak.finite = poison == 0;
  return peak;
}

int64_t most_likely(const float* logits, int64_t n, int64_t k, Candidate* out) {
  k = std::min(k, n);
  if (k <= 0) return 0;
  // Collects until the buffer is full, keeps the best k, and from then on only takes what beats the worst of them. A tie with it has the
  // higher id and loses.
  const int64_t capacity = std::min(n, 2 * k + 64);
  int64_t count = 0;
  float bound = -INFINITY;
  const auto reduce = [&] {
    std::nth_element(out, out + k - 1, out + count, more_likely);
    count = k;
    bound = out[k - 1].logit;
  };
  for_each_reaching(logits, n, bound, [&](int64_t i) {
    if (logits[i] <= bound) return;
    out[count++] = {logits[i], static_cast<int32_t>(i)};
    if (count == capacity) reduce();
  });
  if (count >= k) {
    reduce();
  } else if (count > 0) {
    std::iter_swap(out + count - 1, std::max_element(out, out + count, more_likely));
  }
  return count;
}

}  // namespace baton::cpu
