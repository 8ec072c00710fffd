// Which parts of a chat request are trusted: the words of users and tools never become special tokens.
#pragma once

#include "text/chat_template.h"

namespace baton::text {

// The value with all its text and numbers of one origin. What has it already is shared.
ChatValue with_origin(const ChatValue& value, bool untrusted);
// A message by its role. Roles and types of parts that the protocol knows are trusted: templates make markers of them, as in
// '<|' + role + '|>'.
ChatValue with_origin(const ChatValue& message, const Trust& trust);

}  // namespace baton::text
