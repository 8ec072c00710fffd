// What goes to standard error. A closed or full standard error must not change how a command ends, so failures to write are ignored here.
#pragma once

#include <unistd.h>

#include <string_view>

namespace baton::app {

inline void print_error(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDERR_FILENO, text.data(), text.size());
    if (n <= 0) return;
    text.remove_prefix(static_cast<size_t>(n));
  }
}

}  // namespace baton::app
