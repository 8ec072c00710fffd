#include "text/grammar/worker_channel.h"

#include <sys/socket.h>

#include <cerrno>

namespace baton::text {
namespace {

bool send_all(int socket, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::send(socket, data, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

bool receive_all(int socket, char* data, size_t size) {
  while (size > 0) {
    const ssize_t n = ::recv(socket, data, size, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    data += n;
    size -= static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

bool send_message(int socket, std::string_view bytes) {
  const auto size = static_cast<uint32_t>(bytes.size());
  return bytes.size() <= kMostMessageBytes && send_all(socket, reinterpret_cast<const char*>(&size), sizeof size) &&
         send_all(socket, bytes.data(), bytes.size());
}

std::optional<std::string> receive_message(int socket) {
  uint32_t size = 0;
  if (!receive_all(socket, reinterpret_cast<char*>(&size), sizeof size) || size > kMostMessageBytes) return std::nullopt;
  std::string bytes(size, '\0');
  if (!receive_all(socket, bytes.data(), bytes.size())) return std::nullopt;
  return bytes;
}

}  // namespace baton::text
