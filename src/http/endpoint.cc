#include "http/endpoint.h"

#include <fmt/format.h>
#include <netdb.h>

#include <cstring>
#include <memory>

namespace baton::http {

bool is_this_machine(std::string_view host) { return host == "localhost" || host == "::1" || host == "[::1]" || host.starts_with("127."); }

Result<Endpoint> Endpoint::resolve(const Url& url) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int resolved = ::getaddrinfo(url.host.c_str(), std::to_string(url.port).c_str(), &hints, &found);
  if (resolved != 0)
    return Error{.kind = Error::Kind::kIo,
                 .message = fmt::format("The name '{}' cannot be resolved ({}).", url.host, gai_strerror(resolved))};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  Endpoint e{.host = url.host, .port = url.port, .tls = url.tls};
  e.address_bytes = found->ai_addrlen;
  std::memcpy(&e.address, found->ai_addr, found->ai_addrlen);
  return e;
}

namespace {

std::string authority_of(std::string_view host, uint16_t port) {
  const bool bare_v6 = host.find(':') != std::string_view::npos && !host.starts_with('[');
  return bare_v6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace

std::string Endpoint::authority() const { return authority_of(host, port); }

std::string listening_url(bool tls, std::string_view host, uint16_t port) {
  return fmt::format("{}://{}", tls ? "https" : "http", authority_of(host, port));
}

}  // namespace baton::http
