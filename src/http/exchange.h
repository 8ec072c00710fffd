// One request in flight: how it is answered, from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "http/message.h"

namespace baton::http {

// The body of an answer that is sent while it is made. Every function may be called from any thread and none waits.
// Dropped without end(), the answer is broken off in a way that the client can tell from a complete one.
class EventStream {
 public:
  virtual ~EventStream() = default;
  // Appends whole events, so that a comment may stand between two calls. False once nobody will read them any more: the client is gone, or
  // so slow that more than Limits::stream_bytes would wait (then the connection is reset).
  // Calls between two runs of the connection's loop cost one wake-up and one send together.
  virtual bool write(std::string_view bytes) = 0;
  // What was written is sent, then the answer is complete. Only the first call counts.
  virtual void end() = 0;
  // Bytes that the system has not taken yet.
  virtual size_t unsent() const = 0;
  virtual bool gone() const = 0;
};

// Answer it once: by respond() or by stream(). Dropped without an answer, it answers 500.
// Every function may be called from any thread and none waits.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const Request& request() const = 0;
  virtual void respond(Response response) = 0;
  // Sends the head at once.
  virtual std::shared_ptr<EventStream> stream(StreamHead head) = 0;
  // Called once if the client goes away (also by closing only its sending side) or is cut before its answer is complete: the last byte of
  // a Response or end() of a stream has been handed over. On the connection's loop and without locks, or at once if it has happened
  // already. Must not wait, and must not own the exchange or the stream. The last callback given counts.
  virtual void on_gone(std::function<void()> callback) = 0;
  virtual bool gone() const = 0;
};

// Called on a loop's thread, so it must not wait: it answers, or hands the exchange on.
using Handler = std::function<void(std::shared_ptr<Exchange>)>;

}  // namespace baton::http
