#include "http/response_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <iterator>

namespace baton::http {

namespace {

constexpr std::string_view kOwnFields[] = {"content-length", "transfer-encoding", "connection", "date", "content-type"};

// What comes from outside (a request id that is handed back) must not begin another line.
void append_clean(std::string& out, std::string_view text) {
  for (const char c : text) out += (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7F ? ' ' : c;
}

void append_field(std::string& out, std::string_view name, std::string_view value) {
  append_clean(out, name);
  out += ": ";
  append_clean(out, value);
  out += "\r\n";
}

}  // namespace

std::string http_date() {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm t{};
  gmtime_r(&now, &t);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[t.tm_wday], t.tm_mday, kMonths[t.tm_mon], t.tm_year + 1900, t.tm_hour,
                     t.tm_min, t.tm_sec);
}

void append_head(std::string& out, int status, const HeaderList& headers, const std::string& content_type, const HeadFraming& framing) {
  fmt::format_to(std::back_inserter(out), "HTTP/1.1 {} {}\r\n", status, reason_phrase(status));
  append_field(out, "Date", http_date());
  if (!content_type.empty()) append_field(out, "Content-Type", content_type);
  if (framing.content_length) fmt::format_to(std::back_inserter(out), "Content-Length: {}\r\n", *framing.content_length);
  if (framing.chunked) append_field(out, "Transfer-Encoding", "chunked");
  if (framing.close) append_field(out, "Connection", "close");
  if (framing.say_keep_alive) append_field(out, "Connection", "keep-alive");
  for (const auto& [name, value] : headers) {
    const auto own = [&name = name](std::string_view field) { return equal_names(field, name); };
    if (!std::any_of(std::begin(kOwnFields), std::end(kOwnFields), own)) append_field(out, name, value);
  }
  out += "\r\n";
}

}  // namespace baton::http
