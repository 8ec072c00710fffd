// The command line that the checkers of recorded cases share: paths in, a table out, 1 if something differs or cannot be read.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "base/result.h"

namespace baton::text {

// `Check` has Status run(path), for each path in turn, and int report(), which prints and gives the exit code.
template <class Check>
int checker_main(const char* name, int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: {} PATH...\n", name);
    return 2;
  }
  Check check;
  for (int i = 1; i < argc; ++i) {
    try {
      if (const Status status = check.run(argv[i]); !status) {
        fmt::print(stderr, "{}: {}\n", name, status.error().message);
        return 1;
      }
    } catch (const std::exception& e) {  // a field that is missing or of another type
      fmt::print(stderr, "{}: {}: {}\n", name, argv[i], e.what());
      return 1;
    }
  }
  return check.report();
}

}  // namespace baton::text
