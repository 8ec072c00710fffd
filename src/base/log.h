// Log facade: text on a terminal, one JSON object per line otherwise, always on stderr. Formatting is fmt's.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace baton {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Process-wide; call before the first thread starts.
void set_log_level(LogLevel level);
void log_message(LogLevel level, std::string_view message);

template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::kInfo, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::kWarning, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_message(LogLevel::kError, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace baton
