// Keeps requests away from an instance that fails them: closed, open for a time after some failures in a row, then one request as a trial.
#pragma once

#include <algorithm>
#include <cstdint>

namespace baton::router {

using TimeMs = int64_t;  // of a clock that only goes forward

struct BreakerOptions {
  int failures = 3;       // in a row; then it opens
  int64_t open_ms = 500;  // the first time; doubled with each trial that fails
  int64_t most_open_ms = 8000;
};

class Breaker {
 public:
  enum class State : uint8_t { kClosed, kOpen, kTrial };

  explicit Breaker(BreakerOptions options = {}) : options_(options) {}

  State state() const { return state_; }
  int64_t opened() const { return opened_; }  // how often
  // Whether a request may be sent now.
  bool lets(TimeMs now) const { return state_ == State::kClosed || (state_ == State::kOpen && now >= until_); }
  // One is sent; lets() has said yes.
  void sent(TimeMs now) {
    if (state_ == State::kOpen && now >= until_) state_ = State::kTrial;
  }
  void succeeded() {
    state_ = State::kClosed;
    failures_ = 0;
    open_ms_ = 0;
  }
  // `jitter` in [0, 1) spreads the trials of several routers.
  void failed(TimeMs now, double jitter) {
    if (state_ == State::kOpen) return;  // one that was sent before it opened
    if (state_ == State::kClosed && ++failures_ < options_.failures) return;
    open_ms_ = std::min(open_ms_ == 0 ? options_.open_ms : open_ms_ * 2, options_.most_open_ms);
    until_ = now + open_ms_ + static_cast<int64_t>(jitter * static_cast<double>(open_ms_) / 4);
    state_ = State::kOpen;
    failures_ = 0;
    ++opened_;
  }
  // The request was neither: its client went, or it was turned away for its own sake. A trial that ended so is made again.
  void undecided() {
    if (state_ == State::kTrial) state_ = State::kOpen;
  }

 private:
  BreakerOptions options_;
  State state_ = State::kClosed;
  int failures_ = 0;
  int64_t open_ms_ = 0;
  TimeMs until_ = 0;
  int64_t opened_ = 0;
};

}  // namespace baton::router
