// POST /v1/chat/completions: the request.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/error.h"
#include "api/limits.h"
#include "api/request.h"
#include "text/chat_template.h"
#include "text/grammar/tool_grammar.h"
#include "text/parse/argument_types.h"

namespace baton::api {

struct Tools {
  enum class Choice : uint8_t { kAuto, kNone, kRequired, kNamed };
  std::vector<text::ToolFunction> functions{};  // empty if choice is kNone
  Choice choice = Choice::kAuto;
  std::string named{};   // one of the functions
  bool parallel = true;  // several calls in one answer

  bool empty() const { return functions.empty(); }
  text::ToolTypes types() const;
};

// A conversation, in whichever API it came: Anthropic's and Responses' requests become one of these.
struct ChatRequest : Request {
  text::ChatRequest prompt{};  // passed find_problem(); `trust` and `now` are the server's to set
  Tools tools{};
  std::string reasoning_effort{};  // empty: not said. Also among the template's variables
  int32_t top_logprobs = -1;       // as it was given; what counts is sampling.logprobs
};

// The body of a request; any bytes.
ApiResult<ChatRequest> parse_chat(std::string_view body, const ParseLimits& limits);

}  // namespace baton::api
