// The input items of the Responses API as messages of chat completions.
#pragma once

#include "api/field_reader.h"
#include "text/chat_template.h"

namespace baton::api {

// `input`: a string, or items: messages, function calls, their outputs, and reasoning. What the assistant did between two other items is
// one message. Missing if there is an error.
text::ChatValue messages_of_items(Reading& reading, const text::ChatValue& input);

}  // namespace baton::api
