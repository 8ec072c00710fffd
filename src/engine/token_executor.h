// An executor over sched/fake_device.h: no model, no arithmetic, and every row checked. For tests.
#pragma once

#include <deque>

#include "engine/cycle_executor.h"
#include "engine/slot_constraints.h"
#include "sched/fake_device.h"

namespace baton::engine {

class TokenExecutor final : public CycleExecutor {
 public:
  TokenExecutor(const sched::MemorySizes& sizes, int64_t vocabulary)
      : device_(sizes, vocabulary), constraints_(sizes.slots), vocabulary_(vocabulary) {}

  void fail_at(int64_t cycle) { fail_at_ = cycle; }  // counted from 1

  // The first token that may come from `token` on, around the end of the vocabulary.
  static int32_t first_allowed(int32_t token, const uint32_t* allowed, int64_t vocabulary) {
    if (allowed == nullptr) return token;
    for (int64_t i = 0; i < vocabulary; ++i) {
      const auto t = static_cast<int32_t>((token + i) % vocabulary);
      if ((allowed[t / 32] >> t % 32 & 1) != 0) return t;
    }
    return ops::kNothingAllowed;
  }

  void launch(const sched::Cycle& cycle, std::span<const BoundChoice> bound) override {
    EXPECT_EQ(bound.size(), cycle.binds.size());
    for (size_t i = 0; i < bound.size(); ++i) {
      EXPECT_NE(bound[i].request, nullptr);
      constraints_.bind(cycle.binds[i], bound[i].constraint);
    }
    CycleResult result;
    result.failed = ++launched_ == fail_at_;
    result.error = "asked to";
    sched::FakeDevice::Outcome drawn = device_.run(cycle, [&](int32_t index, const sched::Draw& draw, int32_t token) {
      const uint32_t* allowed = constraints_.lead(draw.slot, draw.position, {}).front();
      token = first_allowed(token, allowed, vocabulary_);
      constraints_.settle(draw.slot, {}, {&token, 1}, index, result);
      return token;
    });
    result.tokens = std::move(drawn.tokens);
    result.ends = std::move(drawn.ends);
    result.drafted = std::move(drawn.drafted);
    for (const sched::Score& s :
         cycle.scores) {  // a token's log-probability is minus its number, and those of the most likely are minus their rank
      CycleResult::Score& to = result.scores.emplace_back();
      to.position = cycle.rows[static_cast<size_t>(s.rows)].position + s.first + 1;
      for (int32_t i = 0; i < s.count; ++i) {
        to.logprobs.push_back(-static_cast<float>(cycle.ids[static_cast<size_t>(s.ids_begin + i)]));
        for (int32_t k = 0; k < s.logprobs; ++k) to.top.push_back({k, -static_cast<float>(k)});
      }
    }
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
  SlotConstraints constraints_;
  int64_t vocabulary_;
  std::deque<CycleResult> results_;
  CycleResult current_;
  std::function<void()> notify_;
  int64_t launched_ = 0;
  int64_t fail_at_ = -1;
};

}  // namespace baton::engine
