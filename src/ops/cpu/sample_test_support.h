// The filters of sampling in their naive form: double, and a full sort.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "ops/head.h"

namespace baton::cpu::testing {

// How far rounding may move an edge. Positive values keep more tokens, negative ones fewer.
struct Slack {
  double mass = 0;   // of top_p and min_p
  double logit = 0;  // of logits that were edited with rounding: it tells ties from neighbours
};

// The least of the logits that the row's filters keep.
inline double plain_least(const std::vector<double>& logits, const ops::SamplingRow& row, Slack slack) {
  std::vector<double> kept = logits;
  std::sort(kept.begin(), kept.end(), std::greater<>());
  const double peak = kept[0];
  const auto mass = [&](double l) { return std::exp((l - peak) / row.temperature); };
  const auto keep_from = [&](double least) {
    while (kept.size() > 1 && kept.back() < least) kept.pop_back();
  };
  if (row.top_k > 0 && row.top_k < static_cast<int32_t>(kept.size())) keep_from(kept[static_cast<size_t>(row.top_k) - 1] - slack.logit);
  if (row.top_p < 1) {
    double total = 0;
    for (const double l : kept) total += mass(l);
    double sum = mass(peak);
    size_t edge = 0;
    while (edge + 1 < kept.size() && sum < (row.top_p + slack.mass) * total) sum += mass(kept[++edge]);
    keep_from(kept[edge] - slack.logit);
  }
  while (kept.size() > 1 && mass(kept.back()) < row.min_p * (1 - slack.mass)) kept.pop_back();
  return kept.back();
}

}  // namespace baton::cpu::testing
