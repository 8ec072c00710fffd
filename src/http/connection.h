// One client: reads its requests, sends their answers in order. Everything runs on the thread of its loop.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <string>
#include <string_view>

#include "http/loop.h"
#include "http/request_reader.h"
#include "http/transport.h"
#include "http/turn.h"

namespace baton::http {

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Loop& loop, boost::asio::ip::tcp::socket socket, TlsChannel tls);

  // Reads; or only answers `status` and closes.
  void start();
  void start_refused(int status, std::string_view message);

  void on_mail();                  // its turn has news
  void on_tick();                  // deadlines and pings
  void on_drain();                 // no further request after the one that is open
  void close(bool reset = false);  // at once; also tells the turn
  size_t place = 0;                // in the loop's list

 private:
  enum class State {
    kHandshake,
    kReading,    // a request, or nothing yet
    kAnswering,  // a request is with the handler, or its answer on the way
    kClosing,    // sends the rest of what it has, then lingers
    kLingering,  // has said that it sends no more; what the client still sends is dropped
    kClosed,
  };

  // Reading.
  void wait_to_read();
  void on_readable();
  void consume(std::string_view input);
  void after_feed();
  void dispatch();
  void refuse(int status, std::string_view message);
  void shake_hands();

  // Writing.
  bool has_output() const { return !out_.empty() || !tail_.empty(); }
  bool flush();  // false: blocked, or closed
  void wait_to_write();
  void pump();         // sends what there is
  bool take_output();  // from the turn into out_; false if there is nothing new
  void put_response(Response response);
  void put_stream_head(const StreamHead& head);
  void put_chunk(std::string bytes, bool last);  // bytes: behind Turn::kFrameSpace others, or none
  void finish_answer();
  void linger();
  void detach();  // from the turn: nothing more will be done for it

  const Limits& limits() const { return loop_.shared.options.limits; }

  Loop& loop_;
  boost::asio::ip::tcp::socket socket_;
  Transport transport_;
  RequestReader reader_;
  State state_ = State::kReading;
  bool waiting_to_read_ = false;
  bool waiting_to_write_ = false;
  bool keep_alive_ = true;
  bool served_ = false;    // has had a request
  bool in_head_ = false;   // of a request that is being read
  bool http_1_0_ = false;  // of the open request, like the following
  bool head_only_ = false;
  bool streaming_ = false;
  bool chunked_ = false;
  bool pings_ = false;
  bool bodyless_ = false;     // a status without a body
  bool still_sends_ = false;  // the client most likely has not sent all of what was refused
  bool last_output_ = false;  // the answer ends with what is in out_
  std::string out_, tail_;    // being sent: out_ from sent_ on, then tail_
  size_t sent_ = 0;
  std::string input_;  // behind the open request
  std::shared_ptr<Turn> turn_;
  size_t dropped_ = 0;  // bytes read while closing
  Clock::time_point body_began_ = kNever;
  Clock::time_point read_deadline_ = kNever;
  Clock::time_point drain_deadline_ = kNever;  // for a request that is not complete
  Clock::time_point write_deadline_ = kNever;
  Clock::time_point ping_at_ = kNever;
};

}  // namespace baton::http
