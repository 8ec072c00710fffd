#include "server/page.h"

#include <algorithm>
#include <string>

#include "server/endpoints.h"
#include "server/server.h"

namespace baton::server {
namespace {

// Nothing from elsewhere, nothing written into the page, in no frame; and what it asks goes to this server alone.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

std::string_view content_type(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/javascript; charset=utf-8";
}

}  // namespace

void get_page(Server& server, const std::shared_ptr<Call>& call) {
  constexpr std::string_view kFolder = "/page/";
  const std::string& path = call->request().path;
  const std::string_view name = path == "/" ? "index.html" : std::string_view(path).substr(kFolder.size());
  const std::span<const PageFile> files = page_files();
  const auto file = std::find_if(files.begin(), files.end(), [&](const PageFile& f) { return f.name == name; });
  if (file == files.end() || !server.settings().web_page) return call->fail(api::ApiError::not_found("There is no such page here."));
  call->add_header("content-security-policy", std::string(kPolicy));
  call->add_header("x-content-type-options", "nosniff");
  call->add_header("referrer-policy", "no-referrer");
  call->add_header("cross-origin-opener-policy", "same-origin");
  call->add_header("cache-control", "no-cache");  // another version of the program may come
  call->respond(200, std::string(file->text), content_type(name));
}

}  // namespace baton::server
