// The tables of all endpoints.
#pragma once

#include <span>
#include <vector>

#include "api/field_table.h"

namespace baton::api {

std::vector<std::span<const Field>> chat_groups();
std::vector<std::span<const Field>> completion_groups();
std::vector<std::span<const Field>> tokenize_groups();  // of a text; of a conversation: chat_groups()
std::vector<std::span<const Field>> detokenize_groups();
std::vector<std::span<const Field>> messages_groups();
std::vector<std::span<const Field>> count_tokens_groups();
std::vector<std::span<const Field>> generate_groups();
std::vector<std::span<const Field>> generate_sampling_groups();  // of sampling_params
std::vector<std::span<const Field>> responses_groups();

}  // namespace baton::api
