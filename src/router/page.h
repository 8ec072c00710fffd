// The page of the fleet at "/", for people. Its files lie in src/router/page and are part of the program.
#pragma once

#include <span>
#include <string_view>

#include "http/exchange.h"

namespace baton::router {

struct PageFile {
  std::string_view name;
  std::string_view text;
};
std::span<const PageFile> page_files();

// To "/" with its page, to "/page/NAME" with that file.
void respond_page(http::Exchange& exchange);

}  // namespace baton::router
