// A server to call.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/client.h"

namespace baton::http {

// Whether this host, to listen at, can be reached from this machine alone.
bool is_this_machine(std::string_view host);

// Where a listener at this host is found.
std::string listening_url(bool tls, std::string_view host, uint16_t port);

// With its address looked up, so that a call need not wait for that.
struct Endpoint {
  std::string host = {};
  uint16_t port = 80;
  bool tls = false;
  sockaddr_storage address = {};
  socklen_t address_bytes = 0;

  // Waits for the system's resolver if the host is a name.
  static Result<Endpoint> resolve(const Url& url);
  std::string authority() const;  // "host:port" as the Host field has it
};

}  // namespace baton::http
