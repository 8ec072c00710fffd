// Accepts connections, reads requests within their limits, and sends the answers: HTTP/1.0 and 1.1, plain or over TLS.
//
// `threads` loops, each with a thread of its own; a connection belongs to one loop for its life. The handler runs on these threads.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "http/exchange.h"
#include "http/message.h"

namespace baton::http {

// PEM files. With client_ca, only clients whose certificate it signed are let in.
struct TlsFiles {
  std::string certificate;  // the chain, the server's own first
  std::string key;
  std::string client_ca = {};  // may be empty
};

struct ListenerOptions {
  std::string host = "127.0.0.1";  // an address, or a name: then all of its addresses
  uint16_t port = 0;               // 0: any free one
  int threads = 1;
  Limits limits = {};
  std::optional<TlsFiles> tls = {};
  // The answer below the handler: what could not be read as a request, limits, timeouts. `head` is what has been read of one (its path may
  // still have its query); null: nothing. From any loop.
  std::function<Response(int status, std::string_view message, const Request* head)> refusal = [](int status, std::string_view message,
                                                                                                  const Request*) {
    return Response{.status = status, .headers = {}, .body = default_error_body(status, message)};
  };
};

// Since the start, unless said otherwise. Read while the loops run: each is exact, all together need not be of one moment.
struct Counters {
  int64_t connections_open = 0;  // now
  int64_t requests_open = 0;     // now: handed to the handler and not completely answered
  int64_t streams_open = 0;      // now
  int64_t connections_accepted = 0;
  int64_t connections_refused = 0;  // above Limits::connections
  int64_t requests = 0;
  int64_t answers[6] = {};   // by the first digit of the status
  int64_t malformed = 0;     // requests refused below the handler for their form or size
  int64_t clients_gone = 0;  // before their answer was complete
  int64_t slow_readers = 0;  // cut at stream_bytes or write_timeout
  int64_t read_timeouts = 0;
  int64_t tls_failures = 0;  // handshakes
  int64_t bytes_received = 0;
  int64_t bytes_sent = 0;
  int64_t wake_ups = 0;  // of loops by other threads
  int64_t sends = 0;     // system calls
};

class Listener {
 public:
  // Refuses an address that cannot be listened on and certificates that cannot be used.
  static Result<std::unique_ptr<Listener>> start(ListenerOptions options, Handler handler);
  // The same in two steps, for a handler that uses its listener: it may be called before open() returns.
  static std::unique_ptr<Listener> create(ListenerOptions options, Handler handler);
  virtual Status open() = 0;
  // Closes everything at once. The handler and callbacks of on_gone run before it returns, never afterwards; exchanges and streams may
  // outlive it. The destructor does it, too: too late for a handler that uses the listener through a pointer that is already empty.
  virtual void close() = 0;
  virtual ~Listener() = default;

  virtual uint16_t port() const = 0;
  // New connections are refused by the system from now on. Returns when the port is closed.
  virtual void stop_accepting() = 0;
  // Stops accepting, closes idle connections, lets open requests end and each connection with its request.
  // True if all were closed by the deadline.
  virtual bool drain(std::chrono::steady_clock::time_point deadline) = 0;
  virtual Counters counters() const = 0;
  // Reads the files again; connections from now on use them. On an error the old ones stay.
  virtual Status reload_tls() = 0;
};

}  // namespace baton::http
