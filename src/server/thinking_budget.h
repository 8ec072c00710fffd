// Ends a choice's reasoning after a number of tokens, by letting nothing but </think> come next; then, or without a budget, another
// constraint goes on.
#pragma once

#include <memory>

#include "engine/constraint.h"

namespace baton::server {

struct ThinkingBudget {
  int32_t close = 0;   // the token of </think>
  int64_t tokens = 0;  // of reasoning; 0: it ends at once
  int64_t columns = 0;
};

// `inner` may be null: afterwards every token may come. It is told every token from the first one on.
std::unique_ptr<engine::Constraint> limit_thinking(const ThinkingBudget& budget, std::unique_ptr<engine::Constraint> inner);

}  // namespace baton::server
