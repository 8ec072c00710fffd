// POST /v1/messages and /v1/messages/count_tokens of the Anthropic API: the request, as the conversation that it is.
#pragma once

#include <string_view>

#include "api/chat.h"
#include "api/error.h"
#include "api/limits.h"

namespace baton::api {

// The system prompt becomes the first message, tool results become messages of the role `tool`, and thinking becomes reasoning. A last
// message of the assistant is continued. sampling.max_tokens is always set.
ApiResult<ChatRequest> parse_messages(std::string_view body, const ParseLimits& limits);
// The same without what only generating needs.
ApiResult<ChatRequest> parse_count_tokens(std::string_view body, const ParseLimits& limits);

}  // namespace baton::api
