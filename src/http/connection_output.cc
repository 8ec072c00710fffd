// The sending side of a connection: answers and streams into bytes, and bytes into the socket.
#include <fmt/format.h>

#include <utility>

#include "http/connection.h"
#include "http/response_head.h"

namespace baton::http {

namespace asio = boost::asio;

namespace {

constexpr std::chrono::milliseconds kLingerTime{2000};
// Bodies of this size are copied behind the head; larger ones are sent from where they are.
constexpr size_t kCopiedBody = 16 << 10;
// Buffers above this are given back when they are empty.
constexpr size_t kKeptBuffer = 16 << 10;
constexpr std::string_view kLastChunk = "0\r\n\r\n";

bool without_body(int status) { return status < 200 || status == 204 || status == 304; }

}  // namespace

void Connection::wait_to_write() {
  if (std::exchange(waiting_to_write_, true)) return;
  socket_.async_wait(asio::ip::tcp::socket::wait_write, [self = shared_from_this()](const boost::system::error_code& error) {
    self->waiting_to_write_ = false;
    if (error || self->state_ == State::kClosed) return;
    self->loop_.update_now();
    if (self->state_ == State::kHandshake) return self->shake_hands();
    self->pump();
    // TLS may have wanted to write in order to read.
    if (self->state_ != State::kClosed && !self->waiting_to_read_) self->on_readable();
  });
}

bool Connection::flush() {
  while (has_output()) {
    const bool in_tail = sent_ >= out_.size();
    const std::string_view first = in_tail ? std::string_view(tail_).substr(sent_ - out_.size()) : std::string_view(out_).substr(sent_);
    const IoResult result = transport_.write(first, in_tail ? std::string_view() : std::string_view(tail_));
    loop_.counters.sends.add();
    switch (result.state) {
      case IoState::kDone: break;
      case IoState::kWantRead:
      case IoState::kWantWrite:
        if (write_deadline_ == kNever) write_deadline_ = loop_.now() + limits().write_timeout;
        if (turn_ != nullptr && streaming_) turn_->bytes_sent(out_.size() + tail_.size() - sent_);
        if (result.state == IoState::kWantRead) {
          wait_to_read();
        } else {
          wait_to_write();
        }
        return false;
      default: close(); return false;
    }
    loop_.counters.bytes_sent.add(static_cast<int64_t>(result.bytes));
    write_deadline_ = kNever;
    sent_ += result.bytes;
    if (sent_ == out_.size() + tail_.size()) {
      out_.clear();
      if (out_.capacity() > kKeptBuffer) out_ = {};
      tail_ = {};
      sent_ = 0;
    }
  }
  if (turn_ != nullptr && streaming_) turn_->bytes_sent(0);
  return true;
}

void Connection::pump() {
  const auto self = shared_from_this();
  while (state_ != State::kClosed) {
    if (!flush()) return;
    if (state_ == State::kClosing) return linger();
    if (state_ != State::kAnswering) return;
    if (last_output_) {
      finish_answer();
    } else if (!take_output()) {
      return;
    }
  }
}

bool Connection::take_output() {
  std::string bytes;
  bytes.swap(out_);  // empty; lends the turn its capacity
  const Turn::News news = turn_->take(bytes);
  if (news.too_slow || news.broken_off) {
    if (news.too_slow) loop_.counters.slow_readers.add();
    close(true);
    return false;
  }
  if (news.response) {
    put_response(std::move(turn_->response));
    last_output_ = true;
    return true;
  }
  if (news.head) put_stream_head(turn_->head);
  put_chunk(std::move(bytes), news.ended);
  last_output_ = news.ended;
  return has_output() || last_output_;
}

void Connection::put_response(Response response) {
  loop_.counters.answers[response.status / 100 % 6].add();
  keep_alive_ = keep_alive_ && !loop_.draining();
  bodyless_ = without_body(response.status);
  HeadFraming framing{.content_length = {}, .close = !keep_alive_, .say_keep_alive = keep_alive_ && http_1_0_};
  if (!bodyless_) framing.content_length = response.body.size();
  append_head(out_, response.status, response.headers, bodyless_ ? std::string() : response.content_type, framing);
  if (bodyless_ || head_only_) return;
  if (response.body.size() <= kCopiedBody) {
    out_ += response.body;
  } else {
    tail_ = std::move(response.body);
  }
}

void Connection::put_stream_head(const StreamHead& head) {
  loop_.counters.answers[head.status / 100 % 6].add();
  loop_.counters.streams_open.add();
  streaming_ = true;
  bodyless_ = without_body(head.status);
  // HTTP/1.0 knows no chunks: the end of the connection is the end of the body.
  chunked_ = !http_1_0_ && !bodyless_;
  keep_alive_ = keep_alive_ && !loop_.draining() && (chunked_ || bodyless_);
  pings_ = head.content_type == "text/event-stream" && !bodyless_ && !head_only_;
  if (pings_) ping_at_ = loop_.now() + limits().ping;
  append_head(out_, head.status, head.headers, head.content_type,
              {.content_length = {}, .chunked = chunked_, .close = !keep_alive_, .say_keep_alive = keep_alive_ && http_1_0_});
}

void Connection::put_chunk(std::string bytes, bool last) {
  if (bodyless_ || head_only_) return;
  const bool content = bytes.size() > Turn::kFrameSpace;
  if (chunked_) {
    if (content) {
      // The length goes right before the bytes, into the space that was left for it.
      char digits[Turn::kFrameSpace + 1];
      const auto end = fmt::format_to(digits, "{:x}\r\n", bytes.size() - Turn::kFrameSpace);
      const auto length = static_cast<size_t>(end - digits);
      bytes.replace(Turn::kFrameSpace - length, length, digits, length);
      bytes += "\r\n";
      if (out_.empty()) {
        sent_ = Turn::kFrameSpace - length;
        out_ = std::move(bytes);
      } else {
        out_.append(bytes, Turn::kFrameSpace - length);
      }
    }
    if (last) out_ += kLastChunk;
  } else if (content) {
    out_.append(bytes, Turn::kFrameSpace);
  }
  if (pings_ && content) ping_at_ = loop_.now() + limits().ping;
}

void Connection::finish_answer() {
  detach();
  last_output_ = streaming_ = false;
  ping_at_ = kNever;
  if (!keep_alive_) {
    state_ = State::kClosing;
    return;
  }
  state_ = State::kReading;
  read_deadline_ = loop_.now() + limits().idle_timeout;
  if (!input_.empty()) consume(std::exchange(input_, {}));
  if (state_ == State::kClosed) return;
  if (loop_.draining()) on_drain();
  if (state_ != State::kClosed && !waiting_to_read_) on_readable();
}

// Closing while the client still sends would reset the connection, and the answer could be lost. Where that may be so, only the end of the
// answer is said, and the client is waited for.
void Connection::linger() {
  if (!still_sends_ && input_.empty()) return close();
  state_ = State::kLingering;
  read_deadline_ = loop_.now() + kLingerTime;
  transport_.end_sending();
  if (!waiting_to_read_) wait_to_read();
}

}  // namespace baton::http
