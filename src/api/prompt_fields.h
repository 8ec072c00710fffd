// Prompts that are no conversation: text, ids, or lists of either.
#pragma once

#include <string_view>
#include <vector>

#include "api/field_reader.h"
#include "api/request.h"

namespace baton::api {

// A string, a list of strings, a list of ids, or a list of such lists. Sets `batch` if it is a list of prompts.
void read_prompts(FieldReader& in, std::vector<Prompt>& out, bool* batch = nullptr);

// All choices of all prompts have their most; says it of the field that is to blame.
struct ChoiceFields {
  std::string_view choices, prompts;
};
void check_choices(Reading& reading, size_t prompts, int32_t choices_each, const ChoiceFields& fields);

}  // namespace baton::api
