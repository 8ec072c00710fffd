// Bytes in and out of one non-blocking socket, plain or through TLS.
#pragma once

#include <cstddef>
#include <string_view>

#include "http/tls.h"

namespace baton::http {

enum class IoState {
  kDone,       // `bytes` were moved, at least one
  kWantRead,   // try again when the socket is readable
  kWantWrite,  // ... writable
  kEnd,        // the peer sends nothing more
  kFailed,
};

struct IoResult {
  IoState state = IoState::kFailed;
  size_t bytes = 0;
};

// Does not own the socket. No call waits or raises a signal.
class Transport {
 public:
  explicit Transport(int fd) : fd_(fd) {}
  Transport(int fd, TlsChannel tls);  // plain without a channel

  bool secure() const { return tls_ != nullptr; }
  // kDone with no bytes when it is complete.
  IoResult handshake();
  IoResult read(char* into, size_t size);
  // `second` is sent behind `first`; in the count both are one. After kWant... the same bytes must be offered again.
  IoResult write(std::string_view first, std::string_view second);
  // Tells the peer that nothing more will come.
  void end_sending();
  const ssl_st* tls() const { return tls_.get(); }

 private:
  IoResult tls_result(int returned);
  int fd_;
  TlsChannel tls_;
};

}  // namespace baton::http
