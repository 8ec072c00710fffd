// The head of an answer as bytes.
#pragma once

#include <optional>
#include <string>

#include "http/message.h"

namespace baton::http {

struct HeadFraming {
  std::optional<size_t> content_length;
  bool chunked = false;
  bool close = false;
  bool say_keep_alive = false;  // to an HTTP/1.0 client
};

// Appends the head to `out`. Fields that the room writes itself are left out of `headers`.
void append_head(std::string& out, int status, const HeaderList& headers, const std::string& content_type, const HeadFraming& framing);

// "Sun, 06 Nov 1994 08:49:37 GMT", now.
std::string http_date();

}  // namespace baton::http
