#include "server/thinking_budget.h"

#include <algorithm>

namespace baton::server {
namespace {

using engine::Constraint;

class LimitedThinking final : public Constraint {
 public:
  LimitedThinking(const ThinkingBudget& budget, std::unique_ptr<Constraint> inner) : budget_(budget), inner_(std::move(inner)) {}

  size_t mask_words() const override { return (static_cast<size_t>(budget_.columns) + 31) / 32; }

  Result<Next> next(std::span<uint32_t> mask) override {
    if (thinking_ && thought_ >= budget_.tokens) {
      std::fill(mask.begin(), mask.end(), 0U);
      mask[static_cast<size_t>(budget_.close) / 32] |= 1U << (static_cast<uint32_t>(budget_.close) % 32);
      return Next::kSome;
    }
    return inner_ ? inner_->next(mask) : Result<Next>(Next::kAny);
  }

  Status accept(int32_t token) override {
    if (thinking_) {
      ++thought_;
      thinking_ = token != budget_.close;
    } else {
      ++behind_;
    }
    return inner_ ? inner_->accept(token) : Status();
  }

  Status rollback(size_t tokens) override {
    const auto taken = static_cast<int64_t>(tokens);
    const int64_t thoughts = std::max<int64_t>(0, taken - behind_);
    behind_ -= taken - thoughts;
    thought_ -= thoughts;
    thinking_ = thinking_ || thoughts > 0;
    return inner_ ? inner_->rollback(tokens) : Status();
  }

  Result<std::unique_ptr<Constraint>> fork() const override {
    std::unique_ptr<Constraint> inner;
    if (inner_) {
      BATON_ASSIGN(inner, inner_->fork());
    }
    auto other = std::make_unique<LimitedThinking>(budget_, std::move(inner));
    other->thought_ = thought_;
    other->behind_ = behind_;
    other->thinking_ = thinking_;
    return std::unique_ptr<Constraint>(std::move(other));
  }

 private:
  ThinkingBudget budget_;
  std::unique_ptr<Constraint> inner_;
  int64_t thought_ = 0;  // tokens, the closing one included
  int64_t behind_ = 0;   // it
  bool thinking_ = true;
};

}  // namespace

std::unique_ptr<Constraint> limit_thinking(const ThinkingBudget& budget, std::unique_ptr<Constraint> inner) {
  return std::make_unique<LimitedThinking>(budget, std::move(inner));
}

}  // namespace baton::server
