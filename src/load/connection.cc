#include "load/connection.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace baton::load {
namespace {

std::string system_text(int error) { return std::generic_category().message(error); }

double seconds_of(const timespec& t) { return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9; }

// From the control data that the kernel adds to received bytes; negative if there is none.
double lag_of(msghdr& message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) continue;
    timespec stamp{}, now{};
    std::memcpy(&stamp, CMSG_DATA(c), sizeof stamp);
    clock_gettime(CLOCK_REALTIME, &now);
    const double lag = seconds_of({now.tv_sec - stamp.tv_sec, now.tv_nsec - stamp.tv_nsec});
    // Outside of these the machine's clock was set in between.
    constexpr double kLongest = 60;
    return lag >= 0 && lag < kLongest ? lag : -1;
  }
  return -1;
}

}  // namespace

Result<Address> resolve(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | AI_ADDRCONFIG;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (failed != 0)
    return Error{Error::Kind::kIo, fmt::format("{} cannot be resolved ({}); check --base-url or --host", host, gai_strerror(failed))};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  // A name such as localhost may have an address that nobody listens at: the first one that lets us connect is taken.
  int error = 0;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    const int fd = ::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    const bool connected = ::connect(fd, a->ai_addr, a->ai_addrlen) == 0;
    if (!connected) error = errno;
    ::close(fd);
    if (!connected) continue;
    Address out{.size = a->ai_addrlen, .family = a->ai_family};
    std::memcpy(&out.storage, a->ai_addr, a->ai_addrlen);
    return out;
  }
  return Error{Error::Kind::kIo, fmt::format("{} port {}: {}; is the server running there?", host, port, system_text(error))};
}

Connection::~Connection() {
  transport_.reset();
  if (fd_ >= 0) ::close(fd_);
}

Connection::State Connection::fail(std::string problem) {
  problem_ = std::move(problem);
  return State::kFailed;
}

Connection::State Connection::open(const Address& address, const std::string& host, const http::TlsContext* tls) {
  fd_ = ::socket(address.family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd_ < 0) return fail(system_text(errno));
  const int on = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (tls == nullptr) ::setsockopt(fd_, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
  if (::connect(fd_, reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0 && errno != EINPROGRESS)
    return fail(system_text(errno));
  phase_ = Phase::kConnecting;
  wants_write_ = true;
  if (tls != nullptr)
    transport_.emplace(fd_, tls->connect(host));
  else
    transport_.emplace(fd_);
  return State::kBusy;
}

void Connection::start(std::string bytes) {
  reader_ = std::make_unique<http::ResponseReader>(false);
  output_ = std::move(bytes);
  sent_ = 0;
  heard_ = false;
  ++requests_;
  wants_write_ = true;
}

bool Connection::connect_step() {
  if (phase_ == Phase::kConnecting) {
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
    sockaddr_storage peer{};
    socklen_t peer_size = sizeof peer;
    if (error != 0) problem_ = system_text(error);
    if (error != 0 || ::getpeername(fd_, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) return false;
    phase_ = Phase::kShaking;
  }
  if (phase_ == Phase::kShaking) {
    switch (transport_->handshake().state) {
      case http::IoState::kDone: phase_ = Phase::kReady; break;
      case http::IoState::kWantRead: wants_write_ = false; return false;
      case http::IoState::kWantWrite: wants_write_ = true; return false;
      default: {
        const std::string certificate = http::certificate_problem(transport_->tls());
        problem_ = "no TLS connection: " + (certificate.empty() ? http::last_tls_error("the server closed it") : certificate);
        return false;
      }
    }
  }
  return phase_ == Phase::kReady;
}

bool Connection::write_step() {
  while (sent_ < output_.size()) {
    const http::IoResult r = transport_->write(std::string_view(output_).substr(sent_), {});
    if (r.state == http::IoState::kWantWrite || r.state == http::IoState::kWantRead) {
      wants_write_ = r.state == http::IoState::kWantWrite;
      return true;
    }
    if (r.state != http::IoState::kDone) return false;
    sent_ += r.bytes;
  }
  output_ = {};
  sent_ = 0;
  wants_write_ = false;
  return true;
}

http::IoResult Connection::read(char* into, size_t size, double& lag_s) {
  lag_s = -1;
  if (transport_->secure()) return transport_->read(into, size);
  iovec part{into, size};
  alignas(cmsghdr) std::array<char, 128> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t n = ::recvmsg(fd_, &message, MSG_DONTWAIT);
  if (n > 0) {
    lag_s = lag_of(message);
    return {http::IoState::kDone, static_cast<size_t>(n)};
  }
  if (n == 0) return {http::IoState::kEnd};
  return {errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? http::IoState::kWantRead : http::IoState::kFailed};
}

Connection::State Connection::advance(const OnBody& on_body) {
  if (phase_ != Phase::kReady && !connect_step()) return problem_.empty() ? State::kBusy : State::kFailed;
  const bool written = output_.empty() || write_step();
  // A server may answer, and close, before it has read the whole request: what it said counts more than that it could not be written.
  std::array<char, 64 << 10> buffer;
  for (;;) {
    double lag = 0;
    const http::IoResult r = read(buffer.data(), buffer.size(), lag);
    if (r.state == http::IoState::kWantRead || r.state == http::IoState::kWantWrite) break;
    if (r.state == http::IoState::kDone) {
      heard_ = true;
      reader_->feed({buffer.data(), r.bytes}, [&](std::string_view bytes) { on_body(reader_->status(), bytes, lag); });
    } else if (r.state == http::IoState::kEnd && written) {
      reader_->end_of_input();
    } else {
      return fail(heard_ ? "the connection was reset in the middle of the answer" : "the connection was reset without an answer");
    }
    if (reader_->state() == http::ResponseReader::State::kFailed) return fail(reader_->problem());
    if (reader_->state() == http::ResponseReader::State::kComplete)
      return reader_->reusable() && output_.empty() ? State::kIdle : State::kOver;
    // A plain socket that gave less than it was asked for has no more; if it has by now, it is reported again.
    if (r.bytes < buffer.size() && !transport_->secure() && written) break;
  }
  if (!written) return fail("the connection was closed while the request was sent");
  return State::kBusy;
}

}  // namespace baton::load
