// Prompts that are no conversation: text, ids, or lists of either.
#pragma once

#include <string_view>
#include <vector>

#include "api/field_table.h"
#include "api/request.h"

namespace baton::api {

// A string, a list of strings, a list of ids, or a list of such lists. Sets `batch` if it is a list of prompts.
void read_prompts(FieldReader& in, std::vector<Prompt>& out, bool* batch = nullptr);

// All choices of all prompts have their most; says it of the field that is to blame.
struct ChoiceFields {
  std::string_view choices, prompts;
};
void check_choices(Reading& reading, size_t prompts, int32_t choices_each, const ChoiceFields& fields);

// In tables of endpoints whose prompt is no conversation, before sampling_fields(): nothing there tells reasoning from what follows it.
constexpr std::string_view kNoReasoning = "a raw prompt has no reasoning that could be ended; chat completions know one";
constexpr Field kNoThinkingTokenBudget = refused("thinking_token_budget", kNoReasoning, "-1");
constexpr Field kNoThinkingBudget = refused("thinking_budget", kNoReasoning, "-1");
constexpr Field kNoReasoningBudget = refused("reasoning_budget", kNoReasoning, "-1");

}  // namespace baton::api
