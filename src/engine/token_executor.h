// An executor over sched/fake_device.h: no model, no arithmetic, and every row checked. For tests.
#pragma once

#include <deque>

#include "engine/cycle_executor.h"
#include "sched/fake_device.h"

namespace baton::engine {

class TokenExecutor final : public CycleExecutor {
 public:
  TokenExecutor(const sched::MemorySizes& sizes, int64_t vocabulary) : device_(sizes, vocabulary) {}

  void fail_at(int64_t cycle) { fail_at_ = cycle; }  // counted from 1

  void launch(const sched::Cycle& cycle, std::span<const sched::RequestSpec* const> requests) override {
    EXPECT_EQ(requests.size(), cycle.binds.size());
    for (const sched::RequestSpec* r : requests) EXPECT_NE(r, nullptr);
    CycleResult result;
    result.failed = ++launched_ == fail_at_;
    result.error = "asked to";
    result.tokens = device_.run(cycle);
    results_.push_back(std::move(result));
    notify_();
  }
  const CycleResult* poll() override {
    if (results_.empty()) return nullptr;
    current_ = std::move(results_.front());
    results_.pop_front();
    return &current_;
  }
  void on_result(std::function<void()> notify) override { notify_ = std::move(notify); }

 private:
  sched::FakeDevice device_;
  std::deque<CycleResult> results_;
  CycleResult current_;
  std::function<void()> notify_;
  int64_t launched_ = 0;
  int64_t fail_at_ = -1;
};

}  // namespace baton::engine
