// POST /v1/responses: the request, as the conversation that it is. Nothing is stored, so nothing can be referred to.
#pragma once

#include <string>
#include <string_view>

#include "api/chat.h"
#include "api/error.h"
#include "api/limits.h"

namespace baton::api {

struct ResponsesRequest : ChatRequest {
  // What an answer repeats of its request: members of a JSON object, without braces.
  std::string echo{};
};

ApiResult<ResponsesRequest> parse_responses(std::string_view body, const ParseLimits& limits);

}  // namespace baton::api
