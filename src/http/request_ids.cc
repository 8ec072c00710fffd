#include "http/request_ids.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton::http {
namespace {

constexpr size_t kMostIdBytes = 128;

bool is_id(std::string_view text) {
  return !text.empty() && text.size() <= kMostIdBytes && std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7F; });
}

bool is_hex(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

}  // namespace

std::string request_id(const Request& request, std::string_view number) {
  const std::string_view given = request.header("x-request-id");
  return is_id(given) ? std::string(given) : fmt::format("req-{}", number);
}

// Version 00: 00-<32 hex>-<16 hex>-<2 hex>.
std::string next_traceparent(const Request& request, std::string_view number) {
  const std::string_view given = request.header("traceparent");
  const bool valid = given.size() == 55 && given.starts_with("00-") && given[35] == '-' && given[52] == '-' &&
                     is_hex(given.substr(3, 32)) && is_hex(given.substr(36, 16)) && is_hex(given.substr(53, 2)) &&
                     given.substr(3, 32).find_first_not_of('0') != std::string_view::npos;
  if (!valid) return {};
  return fmt::format("{}{}{}", given.substr(0, 36), number.substr(0, 16), given.substr(52));
}

}  // namespace baton::http
