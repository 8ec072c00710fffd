#include "http/connection.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "http/response_head.h"

namespace baton::http {

namespace asio = boost::asio;

namespace {

// What a client may send ahead while a request is open; then it is left in the socket until that is answered.
constexpr size_t kReadAhead = 64 << 10;
// An error is worth nothing if the system resets the connection because the client still sends: so much is dropped instead.
constexpr size_t kLingerBytes = 64 << 20;
// A connection that is new when the drain begins may have its request on the way.
constexpr std::chrono::milliseconds kDrainGrace{500};
constexpr std::string_view kPing = ": ping\n\n";

std::string address_text(const asio::ip::tcp::socket& socket) {
  boost::system::error_code error;
  const auto peer = socket.remote_endpoint(error);
  if (error) return "unknown";
  const std::string address = peer.address().to_string();
  return fmt::format(fmt::runtime(peer.address().is_v6() ? "[{}]:{}" : "{}:{}"), address, peer.port());
}

}  // namespace

Connection::Connection(Loop& loop, asio::ip::tcp::socket socket, TlsChannel tls)
    : loop_(loop), socket_(std::move(socket)), transport_(socket_.native_handle(), std::move(tls)), reader_(loop.shared.options.limits) {}

void Connection::start() {
  if (transport_.secure()) {
    state_ = State::kHandshake;
    read_deadline_ = loop_.now() + limits().header_timeout;
    return shake_hands();
  }
  read_deadline_ = loop_.now() + limits().idle_timeout;
  wait_to_read();
}

void Connection::start_refused(int status, std::string_view message) {
  wait_to_read();
  refuse(status, message);
}

// --- reading

void Connection::wait_to_read() {
  if (std::exchange(waiting_to_read_, true)) return;
  socket_.async_wait(asio::ip::tcp::socket::wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
    self->waiting_to_read_ = false;
    if (error || self->state_ == State::kClosed) return;
    self->loop_.update_now();
    self->on_readable();
  });
}

void Connection::shake_hands() {
  const IoResult result = transport_.handshake();
  switch (result.state) {
    case IoState::kDone:
      state_ = State::kReading;
      read_deadline_ = loop_.now() + limits().idle_timeout;
      if (loop_.draining()) on_drain();
      return on_readable();
    case IoState::kWantRead: return wait_to_read();
    case IoState::kWantWrite: return wait_to_write();
    default: loop_.counters.tls_failures.add(); return close();
  }
}

void Connection::on_readable() {
  if (state_ == State::kHandshake) return shake_hands();
  // Some rounds only: others want their turn.
  for (int round = 0; round < 16 && state_ != State::kClosed; ++round) {
    if (state_ == State::kAnswering && input_.size() >= kReadAhead) return;
    const IoResult result = transport_.read(loop_.scratch.data(), loop_.scratch.size());
    switch (result.state) {
      case IoState::kDone: break;
      case IoState::kWantRead: return wait_to_read();
      case IoState::kWantWrite: return wait_to_write();
      // A client that closes both ways and one that only sends no more look alike until something is sent to it. The former is the common
      // case, and a request whose client has gone must not hold the model: so both end what is open.
      case IoState::kEnd:
      case IoState::kFailed: return close();
    }
    loop_.counters.bytes_received.add(static_cast<int64_t>(result.bytes));
    consume({loop_.scratch.data(), result.bytes});
    // Less than asked for: the socket is most likely empty. TLS may hold more.
    if (state_ != State::kClosed && !transport_.secure() && result.bytes < loop_.scratch.size()) return wait_to_read();
    // TLS may have wanted to read in order to write.
    if (transport_.secure() && has_output() && !waiting_to_write_) pump();
  }
  if (state_ != State::kClosed) wait_to_read();
}

void Connection::consume(std::string_view input) {
  if (state_ == State::kLingering || state_ == State::kClosing) {
    dropped_ += input.size();
    if (dropped_ > kLingerBytes) close(true);
    return;
  }
  while (!input.empty() && state_ == State::kReading) {
    input.remove_prefix(reader_.feed(input));
    after_feed();
  }
  if (state_ == State::kAnswering) input_ += input;
}

void Connection::after_feed() {
  switch (reader_.state()) {
    case RequestReader::State::kEmpty: return;
    case RequestReader::State::kHead:
      if (!std::exchange(in_head_, true)) read_deadline_ = loop_.now() + limits().header_timeout;
      if (loop_.draining()) on_drain();
      return;
    case RequestReader::State::kBody:
      if (body_began_ == kNever) {
        body_began_ = loop_.now();
        if (reader_.expects_continue()) {
          out_ += "HTTP/1.1 100 Continue\r\n\r\n";
          flush();
        }
      }
      read_deadline_ = body_began_ + limits().body_timeout + std::chrono::seconds(reader_.body_bytes() >> 16);
      return;
    case RequestReader::State::kComplete: return dispatch();
    case RequestReader::State::kRefused: loop_.counters.malformed.add(); return refuse(reader_.refusal().status, reader_.refusal().message);
  }
}

void Connection::dispatch() {
  state_ = State::kAnswering;
  served_ = true;
  in_head_ = false;
  body_began_ = read_deadline_ = drain_deadline_ = kNever;
  keep_alive_ = reader_.keep_alive();
  http_1_0_ = reader_.http_1_0();
  head_only_ = reader_.head_only();
  streaming_ = chunked_ = pings_ = bodyless_ = last_output_ = false;
  Request request = reader_.take();
  request.peer = address_text(socket_);
  turn_ = std::make_shared<Turn>(this, loop_.mailbox, std::move(request), limits().stream_bytes);
  loop_.counters.requests.add();
  loop_.counters.requests_open.add();
  const auto exchange = make_exchange(turn_);
  try {
    loop_.shared.handler(exchange);
  } catch (const std::exception& e) {
    log_error("http: the handler of {} {} failed: {}", exchange->request().method, exchange->request().path, e.what());
  }
}

// Answers what is not, or not completely, a request. The connection cannot go on: where the next request begins is not known.
void Connection::refuse(int status, std::string_view message) {
  in_head_ = head_only_ = false;
  keep_alive_ = false;
  still_sends_ = true;
  state_ = State::kClosing;
  read_deadline_ = kNever;
  put_response(loop_.shared.options.refusal(status, message, reader_.head()));
  pump();
}

// --- the life of a connection

void Connection::on_mail() {
  if (has_output()) {
    // It waits for the socket, and looks at its turn afterwards, but some news cannot wait.
    if (turn_ == nullptr || !turn_->must_cut()) return;
    std::string none;
    if (turn_->take(none).too_slow) loop_.counters.slow_readers.add();
    return close(true);
  }
  pump();
}

void Connection::on_tick() {
  const Clock::time_point now = loop_.now();
  if (now >= write_deadline_) {
    loop_.counters.slow_readers.add();
    return close(true);
  }
  if (now >= drain_deadline_ && state_ == State::kReading)
    return refuse(503, "The server is ending, and the request was not complete; send it again, elsewhere.");
  if (now >= read_deadline_) {
    if (state_ == State::kReading && (in_head_ || body_began_ != kNever)) {
      loop_.counters.read_timeouts.add();
      return refuse(408, in_head_ && body_began_ == kNever ? "The head of the request did not arrive in time."
                                                           : "The body of the request did not arrive in time.");
    }
    if (state_ == State::kHandshake) loop_.counters.tls_failures.add();
    return close();
  }
  if (now >= ping_at_ && !has_output()) {
    ping_at_ = now + limits().ping;
    put_chunk(std::string(Turn::kFrameSpace, ' ').append(kPing), false);
    flush();
  }
  // With its input left in the socket the end of the connection would go unseen.
  if (state_ == State::kAnswering && !waiting_to_read_ && input_.size() >= kReadAhead) {
    pollfd p{.fd = socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
    if (::poll(&p, 1, 0) > 0 && (p.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) close();
  }
}

void Connection::on_drain() {
  if (state_ != State::kReading) return;
  if (in_head_ || body_began_ != kNever) {
    drain_deadline_ = std::min(drain_deadline_, loop_.now() + limits().drain_patience);
    return;
  }
  if (served_) return close();
  read_deadline_ = std::min(read_deadline_, loop_.now() + kDrainGrace);
}

void Connection::detach() {
  if (turn_ == nullptr) return;
  turn_->connection = nullptr;
  loop_.counters.requests_open.add(-1);
  if (streaming_) loop_.counters.streams_open.add(-1);
  turn_.reset();
}

void Connection::close(bool reset) {
  if (state_ == State::kClosed) return;
  const auto self = shared_from_this();
  state_ = State::kClosed;
  boost::system::error_code ignored;
  if (reset) {
    socket_.set_option(asio::socket_base::linger(true, 0), ignored);
  } else if (transport_.secure()) {
    transport_.end_sending();
  }
  socket_.close(ignored);
  loop_.remove(*this);
  if (turn_ != nullptr) {
    const auto turn = turn_;
    loop_.counters.clients_gone.add();
    detach();
    turn->set_gone();
  }
}

}  // namespace baton::http
