#include "base/log.h"

#include <spdlog/sinks/ansicolor_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <string>

namespace baton {
namespace {

// Length of the well-formed UTF-8 sequence at `i`, or 0. Paths may hold any bytes, a JSON text may not.
size_t utf8_length(std::string_view text, size_t i) {
  const auto lead = static_cast<unsigned char>(text[i]);
  const size_t length = lead < 0x80                   ? 1
                        : lead >= 0xC2 && lead < 0xE0 ? 2
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xF0 && lead < 0xF5 ? 4
                                                      : 0;
  if (length == 0 || i + length > text.size()) return 0;
  for (size_t k = 1; k < length; ++k)
    if ((static_cast<unsigned char>(text[i + k]) & 0xC0U) != 0x80U) return 0;
  if (length > 2) {  // overlong forms, surrogates, beyond U+10FFFF
    const auto second = static_cast<unsigned char>(text[i + 1]);
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second >= 0xA0) || (lead == 0xF0 && second < 0x90) ||
        (lead == 0xF4 && second >= 0x90))
      return 0;
  }
  return length;
}

std::string escape_json(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    const size_t length = utf8_length(text, i);
    if (length == 0) {
      out += "\\ufffd";
      ++i;
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
      ++i;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
      ++i;
    } else {
      out += text.substr(i, length);
      i += length;
    }
  }
  return out;
}

struct Log {
  bool terminal = ::isatty(STDERR_FILENO) == 1;
  std::shared_ptr<spdlog::logger> logger;

  Log() {
    auto sink =
        std::make_shared<spdlog::sinks::ansicolor_stderr_sink_mt>(terminal ? spdlog::color_mode::always : spdlog::color_mode::never);
    logger = std::make_shared<spdlog::logger>("baton", std::move(sink));
    logger->set_pattern(terminal ? "%H:%M:%S.%e %^%-7l%$ %v" : R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})");
    logger->flush_on(spdlog::level::trace);
    // A log that cannot be written (closed stderr, full disk) must not disturb the program.
    logger->set_error_handler([](const std::string&) {});
  }
};

Log& global_log() {
  static Log log;
  return log;
}

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

}  // namespace

void set_log_level(LogLevel level) { global_log().logger->set_level(level_of(level)); }

void log_message(LogLevel level, std::string_view message) { log_event(level, message, {}); }

void log_event(LogLevel level, std::string_view message, std::span<const LogField> fields) {
  Log& log = global_log();
  const auto wanted = level_of(level);
  if (!log.logger->should_log(wanted)) return;
  std::string line;
  if (log.terminal) {
    line = message;
    for (const LogField& f : fields) line += fmt::format(" {}={}", f.name, f.value);
  } else {
    line = fmt::format("\"message\":\"{}\"", escape_json(message));
    for (const LogField& f : fields)
      line += fmt::format(",\"{}\":{}{}{}", f.name, f.is_number ? "" : "\"", escape_json(f.value), f.is_number ? "" : "\"");
  }
  log.logger->log(wanted, spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace baton
