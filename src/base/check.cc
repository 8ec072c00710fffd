#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace baton {

void check_failed(const char* file, int line, const char* condition, const std::string& detail) {
  std::fprintf(stderr, "baton: internal error at %s:%d: %s does not hold%s%s\n", file, line, condition, detail.empty() ? "" : ": ",
               detail.c_str());
  std::fflush(stderr);
  std::abort();
}

}  // namespace baton
