// Log facade: text on a terminal, one JSON object per line otherwise, always on stderr. Formatting is fmt's.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace baton {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// Process-wide; call before the first thread starts.
void set_log_level(LogLevel level);
void log_message(LogLevel level, std::string_view message);

// A message with fields of its own: `name=value` behind it on a terminal, members of the JSON object otherwise.
struct LogField {
  LogField(std::string_view field_name, std::string field_value) : name(field_name), value(std::move(field_value)) {}
  template <class T>
  requires(std::integral<T> || std::floating_point<T>) LogField(std::string_view field_name, T number)
      : name(field_name), value(fmt::format("{}", number)), is_number(true) {}

  std::string_view name;  // plain letters, digits and '_'; none of time, level, message
  std::string value;
  bool is_number = false;
};
void log_event(LogLevel level, std::string_view message, std::span<const LogField> fields);

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
