// Url::parse of client.h.
#include <fmt/format.h>

#include <charconv>

#include "http/client.h"

namespace baton::http {

Result<Url> Url::parse(std::string_view text) {
  const auto fail = [&](std::string_view why) {
    return Error{.message = fmt::format("'{}' is not an address of a server: {}. Write for instance http://127.0.0.1:8000.", text, why)};
  };
  Url url;
  std::string_view rest = text;
  if (const size_t scheme = rest.find("://"); scheme != std::string_view::npos) {
    url.tls = equal_names(rest.substr(0, scheme), "https");
    if (!url.tls && !equal_names(rest.substr(0, scheme), "http")) return fail("only http and https are spoken");
    rest.remove_prefix(scheme + 3);
  }
  url.port = url.tls ? 443 : 80;
  const size_t end = std::min(rest.find_first_of("/?#"), rest.size());
  std::string_view authority = rest.substr(0, end);
  url.path = rest.substr(end, rest.find('#', end) - end);
  if (url.path.starts_with('?')) url.path.insert(0, 1, '/');
  if (authority.find('@') != std::string_view::npos) return fail("it holds a user name; keys are given apart");
  std::string_view port;
  if (authority.starts_with('[')) {
    const size_t close = authority.find(']');
    if (close == std::string_view::npos) return fail("a bracket is not closed");
    url.host = authority.substr(1, close - 1);
    port = authority.substr(close + 1);
    if (!port.empty() && !port.starts_with(':')) return fail("behind the bracket only a port may follow");
  } else {
    const size_t colon = std::min(authority.find(':'), authority.size());
    url.host = authority.substr(0, colon);
    port = authority.substr(colon);
  }
  if (url.host.empty()) return fail("there is no host in it");
  for (const char c : text)
    if (static_cast<unsigned char>(c) <= ' ' || c == '\x7F') return fail("it holds spaces or control characters");
  if (!port.empty()) {
    unsigned number = 0;
    const auto [stop, error] = std::from_chars(port.data() + 1, port.data() + port.size(), number);
    if (error != std::errc() || stop != port.data() + port.size() || number == 0 || number > 65535)
      return fail("its port is not a number up to 65535");
    url.port = static_cast<uint16_t>(number);
  }
  return url;
}

}  // namespace baton::http
