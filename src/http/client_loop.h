// Calls to many servers that do not wait: one thread, connections that are kept between calls, answers handed over as they come.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/endpoint.h"
#include "http/message.h"
#include "http/tls.h"

namespace baton::http {

struct OutgoingCall {
  Endpoint endpoint;
  std::string method = "GET";
  std::string target = "/";
  HeaderList headers = {};  // all but Host and Content-Length
  std::string_view body = {};
  std::shared_ptr<const void> held = {};         // keeps the body's bytes, until the call has ended
  std::chrono::milliseconds silence_timeout{0};  // without any byte of the answer; 0: none. Does not run while the receiver wants no more
};

struct CallEnd {
  bool complete = false;     // the whole answer has come
  std::string problem = {};  // otherwise: why not
  bool refused = false;      // nothing listens there
};

// Hears of one call, on the loop's thread.
class Receiver {
 public:
  virtual ~Receiver() = default;
  virtual void on_head(int status, const HeaderList& headers) = 0;
  virtual void on_body(std::string_view bytes) = 0;
  // Exactly once and last, unless the call is cancelled.
  virtual void on_end(const CallEnd& end) = 0;
  // False: the answer is left with the system until it says true; asked a hundred times a second then.
  virtual bool wants_more() { return true; }
};

struct ClientLoopOptions {
  ClientTls tls = {};
  std::chrono::milliseconds connect_timeout{2000};  // with the TLS handshake
  std::chrono::milliseconds idle_timeout{50'000};   // shorter than what servers keep (75 s), so that the client closes first
  size_t idle_per_server = 256;
};

struct ClientLoopCounters {
  int64_t open = 0;  // calls under way
  int64_t idle = 0;  // connections kept
  int64_t connects = 0;
  int64_t reuses = 0;
};

class ClientLoop {
 public:
  using CallId = uint64_t;

  static Result<std::unique_ptr<ClientLoop>> start(ClientLoopOptions options);
  // Cancels what is under way and what was posted. In two steps for tasks that use their loop: stop() ends its thread.
  void stop();
  ~ClientLoop();
  ClientLoop(const ClientLoop&) = delete;
  ClientLoop& operator=(const ClientLoop&) = delete;

  // To be run on the loop's thread. From any thread.
  void post(std::function<void()> task);

  // On the loop's thread, as the following. No function of the receiver is called before this returns.
  CallId call(OutgoingCall call, std::shared_ptr<Receiver> receiver);
  // The receiver hears nothing more; the connection is reset, which tells the server. Fine for calls that have ended.
  void cancel(CallId id);
  ClientLoopCounters counters() const;
  // Called about twenty times a second from now on.
  void on_tick(std::function<void()> tick);

 private:
  class Impl;
  explicit ClientLoop(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton::http
