// Cross-origin requests: which pages of other origins may use the server from a browser.
#pragma once

#include <string>
#include <vector>

#include "http/message.h"

namespace baton::http {

// With no origins (the default) nothing is allowed and no field is added. "*" allows every origin; credentials (cookies) are never allowed,
// keys in an Authorization field are.
class Cors {
 public:
  Cors() = default;
  explicit Cors(std::vector<std::string> origins) : origins_(std::move(origins)) {}

  bool allows(std::string_view origin) const;
  // Adds to an answer what lets the page of `request` read it.
  void decorate(const Request& request, HeaderList& headers) const;
  // Whether a page of an origin that is not allowed sends this. Browsers let it, without asking first, where it looks like a form; they
  // only keep the answer from it. The server's own pages are known by what the browser says, or by the name in Host.
  bool is_foreign(const Request& request) const;
  // A browser's question before the true request: OPTIONS with Origin and Access-Control-Request-Method.
  static bool is_preflight(const Request& request);
  // Its answer, 204; without permission in it if the origin is not allowed.
  Response preflight(const Request& request, std::string_view methods = "GET, POST, OPTIONS") const;

 private:
  std::vector<std::string> origins_;
};

}  // namespace baton::http
