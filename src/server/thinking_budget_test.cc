#include "server/thinking_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace baton::server {
namespace {

using engine::Constraint;

constexpr int32_t kThink = 40, kClose = 41, kCall = 42, kColumns = 70;

// Allows all, or every token but one, or is over.
class Simple final : public Constraint {
 public:
  explicit Simple(Next next, int32_t forbidden = -1) : next_(next), forbidden_(forbidden) {}
  size_t mask_words() const override { return (kColumns + 31) / 32; }
  Result<Next> next(std::span<uint32_t> mask) override {
    for (int32_t t = 0; next_ == Next::kSome && t < kColumns; ++t) {
      const uint32_t bit = 1U << (t % 32);
      if (t == forbidden_)
        mask[t / 32] &= ~bit;
      else
        mask[t / 32] |= bit;
    }
    return next_;
  }
  Status accept(int32_t) override { return {}; }
  Status rollback(size_t) override { return {}; }
  Result<std::unique_ptr<Constraint>> fork() const override { return std::unique_ptr<Constraint>(new Simple(*this)); }

 private:
  Next next_;
  int32_t forbidden_;
};

std::unique_ptr<Constraint> budget_of(int64_t tokens, std::unique_ptr<Constraint> inner = nullptr) {
  return limit_thinking({.close = kClose, .not_before = {kCall}, .not_after = {kThink}, .tokens = tokens, .columns = kColumns},
                        std::move(inner));
}

// The tokens that may come next, or nothing where the form is over. Masks arrive full of what was in the memory before.
std::optional<std::vector<int32_t>> allowed(Constraint& constraint) {
  std::vector<uint32_t> mask(constraint.mask_words(), 0xa5a5a5a5U);
  const Result<Constraint::Next> next = constraint.next(mask);
  EXPECT_TRUE(next.ok());
  if (*next == Constraint::Next::kOver) return std::nullopt;
  std::vector<int32_t> tokens;
  for (int32_t t = 0; t < kColumns; ++t)
    if (*next == Constraint::Next::kAny || (mask[t / 32] >> (t % 32) & 1U) != 0) tokens.push_back(t);
  return tokens;
}

std::vector<int32_t> all_but(std::vector<int32_t> missing) {
  std::vector<int32_t> tokens;
  for (int32_t t = 0; t < kColumns; ++t)
    if (std::find(missing.begin(), missing.end(), t) == missing.end()) tokens.push_back(t);
  return tokens;
}

void accept(Constraint& constraint, std::vector<int32_t> tokens) {
  for (const int32_t t : tokens) EXPECT_TRUE(constraint.accept(t).ok());
}

TEST(ThinkingBudget, NothingButItsEndComesWhenItIsSpent) {
  const auto c = budget_of(2);
  EXPECT_EQ(allowed(*c), all_but({kCall})) << "a call would be cut by the end that is forced into it";
  accept(*c, {1, 2});
  EXPECT_EQ(allowed(*c), std::vector{kClose});
  EXPECT_EQ(allowed(*budget_of(0)), std::vector{kClose});
}

TEST(ThinkingBudget, ReasoningDoesNotOpenAgain) {
  for (const std::vector<int32_t>& thought : {std::vector{kClose}, std::vector{1, 2, kClose}}) {
    const auto c = budget_of(2);
    accept(*c, thought);
    EXPECT_EQ(allowed(*c), all_but({kThink}));
    accept(*c, {1, 2, 3, 4});
    EXPECT_EQ(allowed(*c), all_but({kThink}));
  }
}

TEST(ThinkingBudget, WhatTheOtherConstraintForbidsStaysForbidden) {
  const auto c = budget_of(2, std::make_unique<Simple>(Constraint::Next::kSome, 5));
  EXPECT_EQ(allowed(*c), all_but({5, kCall}));
  accept(*c, {kClose});
  EXPECT_EQ(allowed(*c), all_but({5, kThink}));
  const auto over = budget_of(2, std::make_unique<Simple>(Constraint::Next::kOver));
  accept(*over, {kClose});
  EXPECT_EQ(allowed(*over), std::nullopt);
}

TEST(ThinkingBudget, DraftsThatWereWrongGoBackOverTheEnd) {
  const auto c = budget_of(3);
  accept(*c, {1, kClose, 7, 8});
  ASSERT_TRUE(c->rollback(2).ok());
  EXPECT_EQ(allowed(*c), all_but({kThink}));
  ASSERT_TRUE(c->rollback(1).ok());
  EXPECT_EQ(allowed(*c), all_but({kCall}));
  accept(*c, {2, 3});
  const Result<std::unique_ptr<Constraint>> fork = c->fork();
  ASSERT_TRUE(fork.ok());
  accept(**fork, {kClose});
  EXPECT_EQ(allowed(*c), std::vector{kClose});
  EXPECT_EQ(allowed(**fork), all_but({kThink}));
}

}  // namespace
}  // namespace baton::server
