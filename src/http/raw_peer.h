// A TCP peer that sends any bytes and says what came back, for tests and measurements.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace baton::http {

// Asks again and again, for ten seconds.
template <class Condition>
bool eventually(Condition condition) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class RawPeer {
 public:
  enum class End { kOpen, kClosed, kReset };

  // Connects to this machine. receive_bytes > 0: the size of the receive buffer, for slow readers. from > 0: from the address 127.0.0.0 +
  // from, so that thousands of connections a second need not use again what the system has not forgotten yet.
  explicit RawPeer(uint16_t port, int receive_bytes = 0, bool v6 = false, uint32_t from = 0) {
    fd_ = ::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (from > 0) {
      sockaddr_in source{};
      source.sin_family = AF_INET;
      source.sin_addr.s_addr = htonl(0x7F000000U + from);
      const int on = 1;
      ::setsockopt(fd_, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
      if (::bind(fd_, reinterpret_cast<sockaddr*>(&source), sizeof source) != 0) return;
    }
    if (receive_bytes > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof receive_bytes);
    sockaddr_in six4{};
    six4.sin_family = AF_INET;
    six4.sin_port = htons(port);
    six4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    sockaddr_in6 six6{};
    six6.sin6_family = AF_INET6;
    six6.sin6_port = htons(port);
    six6.sin6_addr = in6addr_loopback;
    connected_ = v6 ? ::connect(fd_, reinterpret_cast<sockaddr*>(&six6), sizeof six6) == 0
                    : ::connect(fd_, reinterpret_cast<sockaddr*>(&six4), sizeof six4) == 0;
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  RawPeer(RawPeer&& o) noexcept : fd_(std::exchange(o.fd_, -1)), connected_(o.connected_), end_(o.end_) {}
  RawPeer& operator=(RawPeer&&) = delete;
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;
  ~RawPeer() { close(); }

  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  // False if the other end does not take them all.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // What comes until `mark` is part of it, the connection ends, or time is up.
  std::string read_until(std::string_view mark, std::chrono::milliseconds limit = std::chrono::milliseconds(10'000)) {
    std::string got;
    const auto deadline = std::chrono::steady_clock::now() + limit;
    char buffer[16384];
    while (mark.empty() || got.find(mark) == std::string::npos) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
      pollfd p{.fd = fd_, .events = POLLIN, .revents = 0};
      if (left <= 0 || ::poll(&p, 1, static_cast<int>(left)) <= 0) break;
      const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) {
        end_ = n == 0 ? End::kClosed : End::kReset;
        break;
      }
      got.append(buffer, static_cast<size_t>(n));
    }
    return got;
  }
  std::string read_to_end(std::chrono::milliseconds limit = std::chrono::milliseconds(10'000)) { return read_until({}, limit); }
  // As of the last read.
  End end() const { return end_; }

  void end_sending() { ::shutdown(fd_, SHUT_WR); }
  void close(bool reset = false) {
    if (fd_ < 0) return;
    const linger option{1, 0};
    if (reset) ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &option, sizeof option);
    ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
  bool connected_ = false;
  End end_ = End::kOpen;
};

}  // namespace baton::http
