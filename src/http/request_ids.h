// How a request is named in logs on its way through several processes.
#pragma once

#include <string>
#include <string_view>

#include "http/message.h"

namespace baton::http {

// The client's x-request-id where it is one, or "req-" and `number`.
std::string request_id(const Request& request, std::string_view number);
// W3C trace context: the client's trace with this process's own span, which is the beginning of `number` (32 hexadecimal digits). Empty
// where the client gives none, or none that is valid.
std::string next_traceparent(const Request& request, std::string_view number);

}  // namespace baton::http
