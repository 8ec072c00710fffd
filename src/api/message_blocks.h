// Messages of the Anthropic API, whose content is a list of blocks, as messages of chat completions.
#pragma once

#include "api/field_reader.h"
#include "text/chat_template.h"

namespace baton::api {

// The content of `system`: a string or text blocks, as a message. Missing if there is an error.
text::ChatValue system_message(Reading& reading, const text::ChatValue& system);
// The list of messages; refuses images, documents and the like by the place where they stand.
text::ChatValue chat_messages(Reading& reading, const text::ChatValue& messages);
// An object of a chat template.
text::ChatValue object_of(std::initializer_list<std::pair<std::string_view, text::ChatValue>> members);
text::ChatValue list_of(std::span<const text::ChatValue> items);

}  // namespace baton::api
