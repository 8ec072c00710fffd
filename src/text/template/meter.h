// The budget of one rendering: bytes alive and steps. When it is used up, it says so once and stays used up.
#pragma once

#include "text/template/limits.h"

namespace baton::text::jinja {

// One thread. Outlives every object that was charged to it.
class Meter {
 public:
  explicit Meter(const Limits& limits) : limits_(limits) {}

  // False when a limit is reached, from then on for good.
  bool take_bytes(size_t bytes) {
    if (bytes > limits_.live_bytes - live_bytes_) bytes_exceeded_ = true;
    if (exceeded()) return false;
    live_bytes_ += bytes;
    return true;
  }
  void give_back(size_t bytes) { live_bytes_ -= bytes; }
  bool take_steps(int64_t steps) {
    steps_ += steps;
    if (steps_ > limits_.steps) steps_exceeded_ = true;
    return !exceeded();
  }
  bool bytes_exceeded() const { return bytes_exceeded_; }
  bool steps_exceeded() const { return steps_exceeded_; }
  bool exceeded() const { return bytes_exceeded_ || steps_exceeded_; }
  size_t live_bytes() const { return live_bytes_; }
  const Limits& limits() const { return limits_; }

 private:
  Limits limits_;
  size_t live_bytes_ = 0;
  int64_t steps_ = 0;
  bool bytes_exceeded_ = false, steps_exceeded_ = false;
};

}  // namespace baton::text::jinja
