#include "http/transport.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <utility>

#include "base/check.h"

namespace baton::http {

namespace {

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

// OpenSSL's own socket BIO calls write(), which raises SIGPIPE when the peer has gone.
int bio_write(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  const auto fd = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  const ssize_t n = ::send(fd, data, static_cast<size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (n < 0 && would_block(errno)) BIO_set_retry_write(bio);
  return static_cast<int>(n);
}

int bio_read(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  const auto fd = static_cast<int>(reinterpret_cast<intptr_t>(BIO_get_data(bio)));
  const ssize_t n = ::recv(fd, data, static_cast<size_t>(size), MSG_DONTWAIT);
  if (n < 0 && would_block(errno)) BIO_set_retry_read(bio);
  if (n == 0) BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
  return static_cast<int>(n);
}

long bio_ctrl(BIO* bio, int command, long, void*) {
  if (command == BIO_CTRL_FLUSH) return 1;
  if (command == BIO_CTRL_EOF) return BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
  return 0;
}

BIO* socket_bio(int fd) {
  static BIO_METHOD* const method = [] {
    BIO_METHOD* m = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket without signals");
    BATON_CHECK(m != nullptr);
    BIO_meth_set_write(m, bio_write);
    BIO_meth_set_read(m, bio_read);
    BIO_meth_set_ctrl(m, bio_ctrl);
    return m;
  }();
  BIO* bio = BIO_new(method);
  BATON_CHECK(bio != nullptr);
  BIO_set_data(bio, reinterpret_cast<void*>(static_cast<intptr_t>(fd)));
  BIO_set_init(bio, 1);
  return bio;
}

}  // namespace

Transport::Transport(int fd, TlsChannel tls) : fd_(fd), tls_(std::move(tls)) {
  if (tls_ == nullptr) return;
  BIO* bio = socket_bio(fd);
  SSL_set_bio(tls_.get(), bio, bio);
}

IoResult Transport::tls_result(int returned) {
  switch (SSL_get_error(tls_.get(), returned)) {
    case SSL_ERROR_WANT_READ: return {IoState::kWantRead};
    case SSL_ERROR_WANT_WRITE: return {IoState::kWantWrite};
    case SSL_ERROR_ZERO_RETURN: return {IoState::kEnd};
    default: return {IoState::kFailed};
  }
}

IoResult Transport::handshake() {
  if (tls_ == nullptr) return {IoState::kDone};
  ERR_clear_error();
  const int n = SSL_do_handshake(tls_.get());
  return n == 1 ? IoResult{IoState::kDone} : tls_result(n);
}

IoResult Transport::read(char* into, size_t size) {
  if (tls_ != nullptr) {
    ERR_clear_error();
    const int n = SSL_read(tls_.get(), into, static_cast<int>(std::min<size_t>(size, INT_MAX)));
    return n > 0 ? IoResult{IoState::kDone, static_cast<size_t>(n)} : tls_result(n);
  }
  const ssize_t n = ::recv(fd_, into, size, MSG_DONTWAIT);
  if (n > 0) return {IoState::kDone, static_cast<size_t>(n)};
  if (n == 0) return {IoState::kEnd};
  return {would_block(errno) ? IoState::kWantRead : IoState::kFailed};
}

IoResult Transport::write(std::string_view first, std::string_view second) {
  if (tls_ != nullptr) {
    const std::string_view bytes = first.empty() ? second : first;
    ERR_clear_error();
    const int n = SSL_write(tls_.get(), bytes.data(), static_cast<int>(std::min<size_t>(bytes.size(), INT_MAX)));
    return n > 0 ? IoResult{IoState::kDone, static_cast<size_t>(n)} : tls_result(n);
  }
  ssize_t n = 0;
  if (second.empty()) {
    n = ::send(fd_, first.data(), first.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  } else {
    iovec parts[2] = {{const_cast<char*>(first.data()), first.size()}, {const_cast<char*>(second.data()), second.size()}};
    msghdr message{};
    message.msg_iov = parts;
    message.msg_iovlen = 2;
    n = ::sendmsg(fd_, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  if (n > 0) return {IoState::kDone, static_cast<size_t>(n)};
  return {n < 0 && would_block(errno) ? IoState::kWantWrite : IoState::kFailed};
}

void Transport::end_sending() {
  if (tls_ != nullptr && SSL_is_init_finished(tls_.get()) != 0) {
    ERR_clear_error();
    SSL_shutdown(tls_.get());
  }
  ::shutdown(fd_, SHUT_WR);
}

}  // namespace baton::http
