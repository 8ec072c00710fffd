// BATON_CHECK: invariants whose failure is a defect of this program, never of its input. They stay on in release builds.
#pragma once

#include <fmt/format.h>

#include <string>

namespace baton {
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& detail);
}  // namespace baton

#define BATON_CHECK(condition)                                   \
  do {                                                           \
    if (!(condition)) [[unlikely]]                               \
      ::baton::check_failed(__FILE__, __LINE__, #condition, {}); \
  } while (false)

#define BATON_CHECK_MSG(condition, ...)                                                \
  do {                                                                                 \
    if (!(condition)) [[unlikely]]                                                     \
      ::baton::check_failed(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)); \
  } while (false)
