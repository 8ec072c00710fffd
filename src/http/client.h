// A client: one server, one connection that is kept between calls, calls that wait. For the terminal, for evaluation, for tests.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/message.h"
#include "http/tls.h"

namespace baton::http {

// "http://127.0.0.1:8000/v1" or "https://[::1]"; without a scheme it is http, without a port 80 or 443.
struct Url {
  bool tls = false;
  std::string host = {};  // without brackets
  uint16_t port = 80;
  std::string path = {};  // with its query; empty or begins with '/'

  static Result<Url> parse(std::string_view text);
};

struct ClientOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 80;
  bool tls = false;
  ClientTls tls_options = {};
  std::chrono::milliseconds connect_timeout{10'000};   // with the TLS handshake
  std::chrono::milliseconds silence_timeout{600'000};  // without any byte of the answer
  size_t body_bytes = 256 << 20;                       // of an answer that is kept whole
};

struct ClientRequest {
  std::string method = "GET";
  std::string target = "/";  // path and query
  HeaderList headers = {};
  std::string content_type = "application/json";  // sent if there is a body
  std::string body = {};
  // Asked at least ten times a second while the call waits; false ends it with an error.
  std::function<bool()> keep_going = {};
};

struct ClientResponse {
  int status = 0;
  HeaderList headers = {};
  std::string body = {};

  // The first value of that name, empty if there is none.
  std::string_view header(std::string_view name) const;
};

// Used by one thread at a time.
class Client {
 public:
  explicit Client(ClientOptions options);
  ~Client();
  Client(Client&&) noexcept;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Waits for the whole answer, of any status. An answer that breaks off is an error.
  Result<ClientResponse> call(const ClientRequest& request);
  // Hands over the bytes of an answer with status 2xx as they come; false from `on_bytes` ends the call without an error and closes the
  // connection. The body of an answer with another status is in the result instead.
  Result<ClientResponse> stream(const ClientRequest& request, const std::function<bool(std::string_view)>& on_bytes);

 private:
  class Link;
  Result<ClientResponse> exchange(const ClientRequest& request, const std::function<bool(std::string_view)>* on_bytes);
  ClientOptions options_;
  std::shared_ptr<const TlsContext> tls_;
  std::unique_ptr<Link> link_;
};

}  // namespace baton::http
