// Ends a choice's reasoning after a number of tokens, by letting nothing but </think> come next; then another constraint goes on.
//
// The budget is for all of the reasoning that a client sees: behind </think> the model cannot open it again, and inside of it no call can
// begin, which the forced </think> would cut.
#pragma once

#include <memory>
#include <vector>

#include "engine/constraint.h"

namespace baton::server {

struct ThinkingBudget {
  int32_t close = 0;                  // the token of </think>
  std::vector<int32_t> not_before{};  // these come only behind it: the markers of calls
  std::vector<int32_t> not_after{};   // and these only before it: <think>
  int64_t tokens = 0;                 // of reasoning; 0: it ends at once
  int64_t columns = 0;                // of the logits; all of the tokens above are below it
};

// `inner` may be null: afterwards every token may come. It is told every token from the first one on.
std::unique_ptr<engine::Constraint> limit_thinking(ThinkingBudget budget, std::unique_ptr<engine::Constraint> inner);

}  // namespace baton::server
