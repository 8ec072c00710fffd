// What one request shares between the loop of its connection and the threads that answer it.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "http/exchange.h"

namespace baton::http {

class Connection;
class Turn;

// What other threads leave for a loop: turns with news. One wake-up covers all that comes until the loop has looked.
class Mailbox {
 public:
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}
  void push(std::shared_ptr<Turn> turn);
  // The loop's side. False, and the next push wakes it again, if there was nothing.
  bool take(std::vector<std::shared_ptr<Turn>>& turns);
  // From now on nothing is taken and nobody woken: the loop ends.
  void close();
  int64_t wake_ups() const;

 private:
  mutable std::mutex mutex_;
  std::function<void()> wake_;
  std::vector<std::shared_ptr<Turn>> turns_;
  bool awake_ = false;  // has been woken, and has not found the mailbox empty since
  bool closed_ = false;
  int64_t wake_ups_ = 0;
};

class Turn : public std::enable_shared_from_this<Turn> {
 public:
  // In front of a stream's bytes, for the length of the HTTP chunk that they become.
  static constexpr size_t kFrameSpace = 10;

  Turn(Connection* owner, std::shared_ptr<Mailbox> mailbox, Request asked, size_t stream_bytes)
      : connection(owner), request(std::move(asked)), mailbox_(std::move(mailbox)), stream_bytes_(stream_bytes) {}

  // Any thread.
  void respond(Response response);
  void start_stream(StreamHead head);
  bool write(std::string_view bytes);
  void end();
  // The handle was dropped: 500 in place of an answer, or the stream is broken off.
  void abandon();
  void on_gone(std::function<void()> callback);
  bool gone() const;
  size_t unsent() const;

  // The loop's side.
  struct News {
    bool response = false;  // take it from `response`
    bool head = false;      // take it from `head`
    bool ended = false;
    bool broken_off = false;
    bool too_slow = false;
  };
  // What there is to do since the last call. The stream's bytes, behind kFrameSpace others, are exchanged for `bytes`, which must be empty.
  News take(std::string& bytes);
  bool must_cut() const;
  void bytes_sent(size_t left);  // how many of those taken last are not sent yet
  // No reader any more; runs the callback.
  void set_gone();

  Connection* connection;  // the loop's; null once the connection is done with this turn
  const Request request;
  Response response;
  StreamHead head;

 private:
  enum class Phase { kOpen, kAnswered, kStreaming, kEnded, kBrokenOff };
  void announce(std::unique_lock<std::mutex>& lock);

  const std::shared_ptr<Mailbox> mailbox_;
  const size_t stream_bytes_;
  mutable std::mutex mutex_;
  Phase phase_ = Phase::kOpen;
  bool announced_ = false;  // lies in the mailbox, or will be looked at without
  bool head_taken_ = false;
  bool gone_ = false;
  bool gone_told_ = false;
  bool too_slow_ = false;
  std::string pending_;
  size_t in_flight_ = 0;
  std::function<void()> on_gone_;
  std::shared_ptr<const void> held_;  // of the response, while the connection has this turn
};

// The handle that the handler gets.
std::shared_ptr<Exchange> make_exchange(std::shared_ptr<Turn> turn);

}  // namespace baton::http
