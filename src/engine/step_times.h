// What the host spends on a cycle, apart from waiting: a histogram of bounded size with quantiles good to 3 %.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace baton::engine {

class StepTimes {
 public:
  void add(int64_t nanoseconds) {
    ++counts_[bucket(nanoseconds < 0 ? 0 : static_cast<uint64_t>(nanoseconds))];
    ++count_;
    sum_ += nanoseconds;
    if (nanoseconds > max_) max_ = nanoseconds;
  }
  int64_t count() const { return count_; }
  int64_t max() const { return max_; }
  double mean() const { return count_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(count_); }
  // Upper edge of the bucket that holds the q-quantile, q in (0, 1].
  int64_t quantile(double q) const {
    const auto wanted = static_cast<int64_t>(q * static_cast<double>(count_));
    int64_t seen = 0;
    for (uint64_t b = 0; b < counts_.size(); ++b)
      if ((seen += counts_[b]) > 0 && seen >= wanted) return upper_edge(b) < max_ ? upper_edge(b) : max_;
    return max_;
  }

 private:
  // 32 buckets to each power of two.
  static constexpr uint64_t kFine = 32;
  static uint64_t bucket(uint64_t n) {
    if (n < kFine) return n;
    const auto shift = static_cast<uint64_t>(std::bit_width(n)) - 6;
    const uint64_t b = kFine * (shift + 1) + (n >> shift) - kFine;
    return b < kBuckets ? b : kBuckets - 1;
  }
  static int64_t upper_edge(uint64_t b) {
    if (b < kFine) return static_cast<int64_t>(b);
    const uint64_t shift = b / kFine - 1;
    return static_cast<int64_t>(((b % kFine + kFine + 1) << shift) - 1);
  }

  static constexpr uint64_t kBuckets = kFine * 40;
  std::array<int64_t, kBuckets> counts_{};
  int64_t count_ = 0;
  int64_t sum_ = 0;
  int64_t max_ = 0;
};

}  // namespace baton::engine
