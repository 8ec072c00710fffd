// A sink that keeps what it hears until somebody asks: for command lines, tests and measurements.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace baton::engine {

class GatheringSink final : public Sink {
 public:
  struct Choice {
    std::vector<int32_t> tokens;  // a stop token is the last one
    std::vector<float> logprobs;  // by token, if asked for
    std::vector<std::vector<ops::TokenLogprob>> top;
    sched::FinishReason reason = sched::FinishReason::kNone;
    int ends = 0;  // events with a reason: 1 in the end
    sched::Usage usage;
    std::chrono::steady_clock::time_point first;  // of its events
    std::chrono::steady_clock::time_point last;
  };

  explicit GatheringSink(int32_t choices = 1, bool logprobs = false) : choices_(static_cast<size_t>(choices)), logprobs_(logprobs) {}

  void on_event(const sched::Event& event, float logprob, std::span<const ops::TokenLogprob> top) override {
    const std::lock_guard lock(mutex_);
    Choice& c = choices_.at(static_cast<size_t>(event.choice));
    c.last = std::chrono::steady_clock::now();
    if (c.ends == 0 && c.tokens.empty()) c.first = c.last;
    if (event.token >= 0) {
      c.tokens.push_back(event.token);
      if (logprobs_) {
        c.logprobs.push_back(logprob);
        c.top.emplace_back(top.begin(), top.end());
      }
    }
    c.usage = event.usage;
    if (event.reason != sched::FinishReason::kNone) {
      c.reason = event.reason;
      ++c.ends;
    }
    if (event.last) over_ = true;
    changed_.notify_all();
  }
  void on_prompt_logprobs(int32_t first, std::span<const float> logprobs, std::span<const ops::TokenLogprob> top) override {
    const std::lock_guard lock(mutex_);
    prompt_in_order_ = prompt_in_order_ && first == static_cast<int32_t>(prompt_logprobs_.size()) + 1;
    prompt_logprobs_.insert(prompt_logprobs_.end(), logprobs.begin(), logprobs.end());
    prompt_top_.insert(prompt_top_.end(), top.begin(), top.end());
  }
  void on_refused(const Error& error) override {
    const std::lock_guard lock(mutex_);
    refusal_ = error;
    over_ = true;
    changed_.notify_all();
  }

  // Waits for the end.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return over_; });
  }
  // Waits for the end, but no longer than this; whether it is there.
  bool wait_for(std::chrono::milliseconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return over_; });
  }
  // Waits until the choice has this many tokens, or for the end.
  void wait_tokens(int32_t choice, size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return over_ || choices_[static_cast<size_t>(choice)].tokens.size() >= count; });
  }
  // After wait().
  const std::optional<Error>& refusal() const { return refusal_; }
  const std::vector<Choice>& choices() const { return choices_; }
  const std::vector<float>& prompt_logprobs() const { return prompt_logprobs_; }  // from token 1 on
  const std::vector<ops::TokenLogprob>& prompt_top() const { return prompt_top_; }
  bool prompt_in_order() const { return prompt_in_order_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Choice> choices_;
  bool logprobs_;
  std::vector<float> prompt_logprobs_;
  std::vector<ops::TokenLogprob> prompt_top_;
  bool prompt_in_order_ = true;
  bool over_ = false;
  std::optional<Error> refusal_;
};

}  // namespace baton::engine
