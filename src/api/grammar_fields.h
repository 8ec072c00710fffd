// What the output keeps to: response_format, and what its spellings have in common.
#pragma once

#include "api/field_table.h"

namespace baton::api {

// OpenAI's response_format, and text.format of its Responses API.
void read_response_format(FieldReader& in, Request& out);

}  // namespace baton::api
