// Prompts that are no conversation: text, ids, or lists of either.
#pragma once

#include <vector>

#include "api/field_reader.h"
#include "api/request.h"

namespace baton::api {

// A string, a list of strings, a list of ids, or a list of such lists. Sets `batch` if it is a list of prompts.
void read_prompts(FieldReader& in, std::vector<Prompt>& out, bool* batch = nullptr);

}  // namespace baton::api
