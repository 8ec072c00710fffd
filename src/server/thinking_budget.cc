#include "server/thinking_budget.h"

#include <algorithm>

namespace baton::server {
namespace {

using engine::Constraint;

class LimitedThinking final : public Constraint {
 public:
  LimitedThinking(ThinkingBudget budget, std::unique_ptr<Constraint> inner) : budget_(std::move(budget)), inner_(std::move(inner)) {}

  size_t mask_words() const override { return (static_cast<size_t>(budget_.columns) + 31) / 32; }

  Result<Next> next(std::span<uint32_t> mask) override {
    if (thinking_ && thought_ >= budget_.tokens) {
      std::fill(mask.begin(), mask.end(), 0U);
      mask[word(budget_.close)] |= bit(budget_.close);
      return Next::kSome;
    }
    Next next = Next::kAny;
    if (inner_) {
      BATON_ASSIGN(next, inner_->next(mask));
    }
    const std::vector<int32_t>& forbidden = thinking_ ? budget_.not_before : budget_.not_after;
    if (next == Next::kOver || forbidden.empty()) return next;
    if (next == Next::kAny) std::fill(mask.begin(), mask.end(), ~0U);
    for (const int32_t token : forbidden) mask[word(token)] &= ~bit(token);
    return Next::kSome;
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
  static size_t word(int32_t token) { return static_cast<size_t>(token) / 32; }
  static uint32_t bit(int32_t token) { return 1U << (static_cast<uint32_t>(token) % 32); }

  ThinkingBudget budget_;
  std::unique_ptr<Constraint> inner_;
  int64_t thought_ = 0;  // tokens, the closing one included
  int64_t behind_ = 0;   // it
  bool thinking_ = true;
};

}  // namespace

std::unique_ptr<Constraint> limit_thinking(ThinkingBudget budget, std::unique_ptr<Constraint> inner) {
  return std::make_unique<LimitedThinking>(std::move(budget), std::move(inner));
}

}  // namespace baton::server
