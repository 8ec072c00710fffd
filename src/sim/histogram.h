// Samples by size, for more of them than can be kept: each counts in a class whose ends differ by two hundredths.
//
// Threads: none of its own.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "load/plot.h"
#include "load/statistics.h"

namespace baton::sim {

class Histogram {
 public:
  // Smaller samples than kLeast count as kLeast.
  void add(double sample, double weight) {
    const double in = std::log(std::max(sample, kLeast) / kLeast) / kStep;
    const auto c = static_cast<size_t>(in);
    if (c >= counts_.size()) counts_.resize(c + 1);
    counts_[c] += weight;
    weight_ += weight;
    sum_ += weight * sample;
    squares_ += weight * sample * sample;
    most_ = std::max(most_, sample);
  }
  void add(const Histogram& other) {
    counts_.resize(std::max(counts_.size(), other.counts_.size()));
    for (size_t i = 0; i < other.counts_.size(); ++i) counts_[i] += other.counts_[i];
    weight_ += other.weight_;
    sum_ += other.sum_;
    squares_ += other.squares_;
    most_ = std::max(most_, other.most_);
  }
  load::Distribution distribution() const {
    load::Distribution d;
    if (weight_ <= 0) return d;
    d.count = std::max<int64_t>(1, std::llround(weight_));
    d.mean = sum_ / weight_;
    d.deviation = std::sqrt(std::max(0.0, squares_ / weight_ - d.mean * d.mean));
    d.p50 = percentile(0.50);
    d.p90 = percentile(0.90);
    d.p95 = percentile(0.95);
    d.p99 = percentile(0.99);
    d.most = most_;
    return d;
  }
  // As a curve of shares.
  load::Series cumulative() const {
    load::Series s;
    double below = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      if (counts_[i] <= 0) continue;
      below += counts_[i];
      s.points.emplace_back(middle(i), below / weight_);
    }
    return s;
  }

 private:
  static constexpr double kLeast = 1e-3, kStep = 0.02;
  static double middle(size_t c) { return kLeast * std::exp((static_cast<double>(c) + 0.5) * kStep); }
  double percentile(double share) const {
    double below = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      below += counts_[i];
      if (below >= share * weight_) return std::min(middle(i), most_);
    }
    return most_;
  }

  std::vector<double> counts_;
  double weight_ = 0, sum_ = 0, squares_ = 0, most_ = 0;
};

}  // namespace baton::sim
