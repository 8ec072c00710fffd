#include "speculate/draft_length.h"

#include <algorithm>

namespace baton::speculate {
namespace {

constexpr double kKeepCosts = 0.98;   // of the weight of what was seen, per cycle
constexpr double kKeepPlaces = 0.95;  // likewise, per block

}  // namespace

void CycleCosts::observe(int64_t sequences, int64_t drafts, double seconds) {
  if (sequences <= 0 || seconds <= 0) return;
  const double x = static_cast<double>(drafts) / static_cast<double>(sequences);
  const double y = seconds / static_cast<double>(sequences);
  for (double* sum : {&weight_, &x_, &y_, &xx_, &xy_}) *sum *= kKeepCosts;
  weight_ += 1;
  x_ += x;
  y_ += y;
  xx_ += x * x;
  xy_ += x * y;
}

double CycleCosts::per_draft() const {
  if (!known()) return 0;
  const double mean = x_ / weight_;
  const double spread = xx_ / weight_ - mean * mean;
  const double slope = spread > 1e-3 ? (xy_ / weight_ - mean * y_ / weight_) / spread : 0;
  const double least = y_ / weight_ / (8 + mean) / 8;  // noise must not make drafts look free
  return spread > 1e-3 ? std::max(slope, least) : y_ / weight_ / (8 + mean);
}

double CycleCosts::share() const {
  if (!known()) return 0;
  return std::max(y_ / weight_ - per_draft() * x_ / weight_, y_ / weight_ / 64);
}

void DraftLength::observe(int32_t drafted, int32_t accepted) {
  for (int32_t i = 0; i < kMostDrafts; ++i) {
    Place& p = places_[static_cast<size_t>(i)];
    p.seen *= kKeepPlaces;
    p.right *= kKeepPlaces;
    if (i < drafted && i <= accepted) p.seen += 1;
    if (i < std::min(drafted, accepted)) p.right += 1;
  }
}

int32_t DraftLength::best(const CycleCosts& costs, int32_t most) const {
  if (!costs.known()) return most;
  int32_t best = 0;
  double tokens = 1;
  double likely = 1;  // that all drafts so far are right
  double seconds = costs.share();
  double most_worth = tokens / seconds;
  for (int32_t k = 1; k <= most; ++k) {
    likely *= places_[static_cast<size_t>(k) - 1].rate();
    tokens += likely;
    seconds += costs.per_draft();
    if (tokens / seconds <= most_worth) continue;
    most_worth = tokens / seconds;
    best = k;
  }
  return best;
}

}  // namespace baton::speculate
