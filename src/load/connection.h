// One connection of the load generator: non-blocking, plain or TLS, one request at a time. It never waits; its owner watches the socket.
#pragma once

#include <netinet/in.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/response_reader.h"
#include "http/transport.h"

namespace baton::load {

// A resolved address.
struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  int family = 0;
};
// Waits for the system's resolver.
Result<Address> resolve(const std::string& host, uint16_t port);

class Connection {
 public:
  // What came of a step. kIdle: an answer is complete, and another request may follow. kOver: complete, and the connection is of no use.
  enum class State : uint8_t { kBusy, kIdle, kOver, kFailed };
  // A piece of the answer's body, and how long the kernel had had it (negative: it does not say).
  using OnBody = std::function<void(int status, std::string_view bytes, double lag_s)>;

  Connection() = default;
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Begins to connect; `tls` may be null. kFailed at once where the system refuses.
  State open(const Address& address, const std::string& host, const http::TlsContext* tls);
  // Of an idle or new connection. `bytes` are a whole request.
  void start(std::string bytes);
  // Does what the socket lets it do. Called when it is readable or writable.
  State advance(const OnBody& on_body);

  int fd() const { return fd_; }
  // Whether to watch for room to write, besides for bytes to read.
  bool wants_write() const { return wants_write_; }
  bool connected() const { return phase_ == Phase::kReady; }
  bool heard() const { return heard_; }               // any byte of the answer
  bool used_before() const { return requests_ > 1; }  // for a request before this one
  const std::string& problem() const { return problem_; }
  int status() const { return reader_ ? reader_->status() : 0; }

 private:
  State fail(std::string problem);
  bool connect_step();  // true when it is connected, with TLS; problem_ says why it cannot be
  bool write_step();    // false on failure
  http::IoResult read(char* into, size_t size, double& lag_s);

  enum class Phase : uint8_t { kClosed, kConnecting, kShaking, kReady };
  Phase phase_ = Phase::kClosed;
  int fd_ = -1;
  std::optional<http::Transport> transport_;
  std::unique_ptr<http::ResponseReader> reader_;
  std::string output_;
  size_t sent_ = 0;
  int64_t requests_ = 0;
  bool wants_write_ = false;
  bool heard_ = false;
  std::string problem_;
};

}  // namespace baton::load
