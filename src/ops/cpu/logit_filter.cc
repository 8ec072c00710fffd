#include "ops/cpu/logit_filter.h"

#include <algorithm>
#include <cmath>

namespace baton::cpu {
namespace {

float top_k_bound(const float* logits, int64_t n, int32_t top_k, Candidate* candidates) {
  const int64_t count = most_likely(logits, n, top_k, candidates);
  return count < top_k ? -INFINITY : candidates[count - 1].logit;
}

// Tokens at or above `bound` are taken by descending probability until their sum reaches top_p of all their mass. The mass is counted in
// buckets of logits first, and only the bucket is sorted in which top_p is reached: a sort of the vocabulary would take ten times as long.
float top_p_bound(const float* logits, int64_t n, const Peak& peak, float temperature, float top_p, float bound,
                  const FilterScratch& scratch) {
  constexpr float kBucketsPerUnit = 32;  // the last bucket begins 128 below the peak, where the mass of a float has long become 0
  const auto mass = [&](float logit) { return std::exp((logit - peak.logit) / temperature); };
  const auto bucket = [&](float logit) {
    return static_cast<int64_t>(std::min((peak.logit - logit) / temperature * kBucketsPerUnit, static_cast<float>(kFilterBuckets - 1)));
  };
  std::fill_n(scratch.masses, kFilterBuckets, 0.0);
  for_each_reaching(logits, n, bound, [&](int64_t i) { scratch.masses[bucket(logits[i])] += mass(logits[i]); });
  double total = 0;
  for (int64_t b = 0; b < kFilterBuckets; ++b) total += scratch.masses[b];
  const double wanted = top_p * total;

  int64_t edge = 0;
  double kept = 0;
  while (edge < kFilterBuckets - 1 && kept + scratch.masses[edge] < wanted) kept += scratch.masses[edge++];
  int64_t count = 0;
  for_each_reaching(logits, n, bound, [&](int64_t i) {
    if (bucket(logits[i]) == edge) scratch.candidates[count++] = {logits[i], static_cast<int32_t>(i)};
  });
  std::sort(scratch.candidates, scratch.candidates + count, more_likely);
  for (int64_t c = 0; c < count; ++c) {
    kept += mass(scratch.candidates[c].logit);
    if (kept >= wanted) return scratch.candidates[c].logit;
  }
  return count > 0 ? scratch.candidates[count - 1].logit : bound;  // sums in another order may differ in their last bit
}

// Rounded up to a float: what is below the bound in exact arithmetic is also below it here.
float min_p_bound(const Peak& peak, float temperature, float min_p) {
  const double exact = peak.logit + double{temperature} * std::log(double{min_p});
  const auto rounded = static_cast<float>(exact);
  return std::min(rounded < exact ? std::nextafter(rounded, INFINITY) : rounded, peak.logit);
}

}  // namespace

float least_kept(const float* logits, int64_t n, const Peak& peak, const ops::SamplingRow& row, const FilterScratch& scratch) {
  float bound = -INFINITY;
  if (row.top_k > 0 && row.top_k < n) bound = top_k_bound(logits, n, row.top_k, scratch.candidates);
  if (row.top_p < 1) bound = top_p_bound(logits, n, peak, row.temperature, row.top_p, bound, scratch);
  if (row.min_p > 0) bound = std::max(bound, min_p_bound(peak, row.temperature, row.min_p));
  return bound;
}

}  // namespace baton::cpu
