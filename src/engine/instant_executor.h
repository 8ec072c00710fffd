// An executor that computes nothing and answers at once: what is left is the time of the host. Like a device it has one cycle ready at a
// time: the next result is there when what follows from this one has been planned.
#pragma once

#include <array>

#include "engine/cycle_executor.h"

namespace baton::engine {

class InstantExecutor final : public CycleExecutor {
 public:
  explicit InstantExecutor(int64_t vocabulary) : vocabulary_(static_cast<uint64_t>(vocabulary)) {}

  void launch(const sched::Cycle& cycle, std::span<const BoundChoice>) override {
    CycleResult& result = results_[static_cast<size_t>(launched_++) % results_.size()];
    result.tokens.resize(cycle.draws.size());
    for (size_t i = 0; i < cycle.draws.size(); ++i)
      result.tokens[i] = static_cast<int32_t>((static_cast<uint64_t>(cycle.draws[i].position) * 2654435761U + i) % vocabulary_);
    notify_();
  }
  const CycleResult* poll() override {
    given_ = !given_;
    if (polled_ == launched_) given_ = false;
    if (given_) return &results_[static_cast<size_t>(polled_++) % results_.size()];
    if (polled_ < launched_) notify_();
    return nullptr;
  }
  void on_result(std::function<void()> notify) override { notify_ = std::move(notify); }

 private:
  std::array<CycleResult, sched::kCyclesInFlight> results_;
  int64_t launched_ = 0;
  int64_t polled_ = 0;
  bool given_ = false;  // by the last poll()
  uint64_t vocabulary_;
  std::function<void()> notify_;
};

}  // namespace baton::engine
