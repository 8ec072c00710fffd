// HTTP messages as the rest of the program sees them: requests with their whole body, answers, and what bounds both.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace baton::http {

// In the order of the wire; a name may come more than once. Names compare without regard to case.
using HeaderList = std::vector<std::pair<std::string, std::string>>;

// The first value of that name, or null.
const std::string* find_header(const HeaderList& headers, std::string_view name);
bool equal_names(std::string_view a, std::string_view b);

struct Request {
  std::string method;  // as sent: methods are case-sensitive
  std::string path;    // of the target, as sent: neither decoded nor normalised; begins with '/', or is "*"
  std::string query;   // behind the first '?', without it
  HeaderList headers;
  std::string body;  // complete and without its framing
  std::string peer;  // address:port

  // The first value of that name, empty if there is none.
  std::string_view header(std::string_view name) const;
};

// Content-Type, Content-Length, Date, Connection and Transfer-Encoding are written by the room. Bytes that would end a line of the head are
// replaced by spaces in names and values.
struct Response {
  int status = 200;
  HeaderList headers = {};
  std::string content_type = "application/json";
  std::string body = {};
  std::shared_ptr<const void> held = {};  // let go of when the answer has been sent, or nobody waits for it any more
};

struct StreamHead {
  int status = 200;
  HeaderList headers = {};
  std::string content_type = "text/event-stream";
};

struct Limits {
  size_t header_bytes = 16 << 10;  // request line and fields; more is answered 431
  size_t body_bytes = 16 << 20;    // more is answered 413
  int connections = 16384;         // open at once; further ones are answered 503 and closed
  // From the first byte of a head to its end, of a TLS handshake likewise; 408.
  std::chrono::milliseconds header_timeout{10'000};
  // For a body, plus a second for every 64 KiB that have come; 408.
  std::chrono::milliseconds body_timeout{60'000};
  // For the rest of a request that has begun to arrive when the listener is drained; 503.
  std::chrono::milliseconds drain_patience{5'000};
  // Without a request: from connecting to the first one, and between two. Longer than what load balancers keep (60 s), since the end
  // that closes first decides who sees an error.
  std::chrono::milliseconds idle_timeout{75'000};
  // Without any progress in sending; the connection is reset.
  std::chrono::milliseconds write_timeout{30'000};
  // An event stream that has been silent for so long sends a comment.
  std::chrono::milliseconds ping{15'000};
  // Bytes of one stream that the system has not taken yet; one more, and the connection is reset.
  size_t stream_bytes = 1 << 20;
};

// "Not Found" for 404; "Unknown" for a number that has no name.
std::string_view reason_phrase(int status);

// An error below the handlers in the shape that OpenAI's clients read.
std::string default_error_body(int status, std::string_view message);

}  // namespace baton::http
