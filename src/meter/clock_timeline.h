// The timeline of a backend whose ops have ended when they return: the host's clock.
#pragma once

#include <chrono>

#include "base/check.h"
#include "ops/timeline.h"

namespace baton::meter {

class ClockTimeline final : public ops::Timeline {
 public:
  explicit ClockTimeline(size_t points) : points_(points) {}
  void mark(size_t i) override { points_[i] = std::chrono::steady_clock::now(); }
  std::vector<double> seconds(size_t count) override {
    std::vector<double> out;
    for (size_t i = 1; i < count; ++i) out.push_back(std::chrono::duration<double>(points_[i] - points_[i - 1]).count());
    return out;
  }

 private:
  std::vector<std::chrono::steady_clock::time_point> points_;
};

}  // namespace baton::meter
