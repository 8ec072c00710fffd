#include "router/page.h"

#include <algorithm>
#include <string>

#include "api/error.h"

namespace baton::router {
namespace {

// Nothing from elsewhere, nothing written into the page, in no frame; and what it asks goes to this router alone.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors "
    "'none'";

std::string_view content_type(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  return "text/javascript; charset=utf-8";
}

}  // namespace

void respond_page(http::Exchange& exchange) {
  constexpr std::string_view kFolder = "/page/";
  const std::string& path = exchange.request().path;
  const std::string_view name = path == "/" ? "index.html" : std::string_view(path).substr(kFolder.size());
  const std::span<const PageFile> files = page_files();
  const auto file = std::find_if(files.begin(), files.end(), [&](const PageFile& f) { return f.name == name; });
  if (file == files.end())
    return exchange.respond(
        {.status = 404, .body = api::error_body(api::Dialect::kOpenAi, api::ApiError::not_found("There is no such page here."))});
  exchange.respond({.headers = {{"content-security-policy", std::string(kPolicy)},
                                {"x-content-type-options", "nosniff"},
                                {"referrer-policy", "no-referrer"},
                                {"cache-control", "no-cache"}},  // another version of the program may come
                    .content_type = std::string(content_type(name)),
                    .body = std::string(file->text)});
}

}  // namespace baton::router
