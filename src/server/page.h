// The page at "/": a chat and the metrics, for people. Its files lie in src/server/page and are part of the program.
#pragma once

#include <span>
#include <string_view>

namespace baton::server {

struct PageFile {
  std::string_view name;
  std::string_view text;
};
std::span<const PageFile> page_files();

}  // namespace baton::server
