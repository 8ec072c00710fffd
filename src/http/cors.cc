#include "http/cors.h"

#include <algorithm>

namespace baton::http {

bool Cors::allows(std::string_view origin) const {
  return !origin.empty() &&
         std::any_of(origins_.begin(), origins_.end(), [&](const std::string& o) { return o == "*" || equal_names(o, origin); });
}

bool Cors::is_foreign(const Request& request) const {
  const std::string_view origin = request.header("Origin");
  if (origin.empty() || allows(origin)) return false;
  // First, since a proxy may have changed Host. Not sent to servers that are neither on this machine nor behind https.
  if (const std::string_view site = request.header("Sec-Fetch-Site"); !site.empty()) return site != "same-origin" && site != "none";
  const size_t scheme = origin.find("://");
  return scheme == std::string_view::npos || !equal_names(origin.substr(scheme + 3), request.header("Host"));
}

void Cors::decorate(const Request& request, HeaderList& headers) const {
  if (origins_.empty()) return;
  // Caches must not hand the permission of one origin to another.
  headers.emplace_back("Vary", "Origin");
  const std::string_view origin = request.header("Origin");
  if (!allows(origin)) return;
  headers.emplace_back("Access-Control-Allow-Origin", origin);
  headers.emplace_back("Access-Control-Expose-Headers", "*");
}

bool Cors::is_preflight(const Request& request) {
  return request.method == "OPTIONS" && !request.header("Origin").empty() && !request.header("Access-Control-Request-Method").empty();
}

Response Cors::preflight(const Request& request, std::string_view methods) const {
  Response response{.status = 204, .headers = {}, .content_type = {}, .body = {}};
  const std::string_view origin = request.header("Origin");
  response.headers.emplace_back("Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers");
  if (!allows(origin)) return response;
  response.headers.emplace_back("Access-Control-Allow-Origin", origin);
  response.headers.emplace_back("Access-Control-Allow-Methods", methods);
  // "*" would not cover Authorization, so what is asked for is repeated.
  if (const std::string_view asked = request.header("Access-Control-Request-Headers"); !asked.empty())
    response.headers.emplace_back("Access-Control-Allow-Headers", asked);
  response.headers.emplace_back("Access-Control-Max-Age", "600");
  return response;
}

}  // namespace baton::http
