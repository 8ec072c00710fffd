// What conversational endpoints have in common: messages, tools, and what only the whole request shows.
#pragma once

#include <boost/json/value.hpp>
#include <string_view>

#include "api/chat.h"
#include "api/field_reader.h"

namespace baton::api {

// The value of a field for the chat template: exact, and bounded, since it takes much more memory than its text. Missing if there is an
// error.
text::ChatValue template_value(FieldReader& in);

// Messages in the form of OpenAI's chat completions: checked, and put as chat templates expect them. `developer` becomes `system`,
// `reasoning` is read as `reasoning_content`, calls without arguments get `{}`.
void check_messages(Reading& reading, text::ChatValue& messages);

// A function of a request, whatever its API: its name is a valid one that is not there yet, and its schema an object.
void add_function(ChatRequest& out, FieldReader name, const boost::json::value* parameters, const FieldReader& owner);
// Tools of APIs that have name, description and schema side by side, the schema under a name of theirs. `check` refuses what is no such
// function.
void read_flat_tools(FieldReader& in, ChatRequest& out, std::string_view schema_name,
                     void (*check)(FieldReader& tool, const boost::json::object& members));
// tools and tool_choice as chat completions have them.
void read_tools(FieldReader& in, ChatRequest& out);
void read_tool_choice(FieldReader& in, ChatRequest& out);

void read_reasoning_effort(FieldReader& in, ChatRequest& out);
// Adds a variable of the chat template, unless the request gave it one by name.
void set_option(ChatRequest& out, std::string_view name, text::ChatValue value);

// At the end, when all fields are read.
void check_conversation(Reading& reading, ChatRequest& request);

inline ChatRequest& chat(Request& out) { return static_cast<ChatRequest&>(out); }

}  // namespace baton::api
