// Everything that can be set about a router, in one table: flag, environment twin and doc text of each setting.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace baton::router {

struct Settings {
  std::vector<std::string> unified, prefill, decode;
  int64_t attempts = 3;
  int64_t probe_interval_ms = 500;
  int64_t probe_timeout_ms = 1000;
  int64_t silence_ms = 5000;
  int64_t connect_timeout_ms = 2000;
  std::string secret_file;
  std::string fleet_ca, fleet_certificate, fleet_key;

  std::string host = "127.0.0.1";
  int64_t port = 8080;
  std::string tls_certificate, tls_key;
  std::vector<std::string> allowed_origins;
  bool web_page = true;

  int64_t connections = 16384;
  int64_t body_bytes = int64_t{16} << 20;
  int64_t header_bytes = int64_t{16} << 10;
  int64_t stream_bytes = int64_t{4} << 20;  // more than instances hold, so that their largest event fits
  int64_t answer_bytes = int64_t{256} << 20;
  int64_t keep_alive_s = 75;
  int64_t ping_s = 15;
  int64_t shutdown_s = 30;

  int64_t http_threads = 1;
  std::string log_level = "info";
  bool log_requests = true;
};

struct Setting {
  using Member = std::variant<std::string Settings::*, int64_t Settings::*, bool Settings::*, std::vector<std::string> Settings::*>;

  std::string_view group;
  std::string_view name;  // "probe-timeout-ms": flag --probe-timeout-ms, environment BATON_ROUTER_PROBE_TIMEOUT_MS
  Member member;
  std::string_view doc;
  std::vector<std::string_view> words{};  // the values that there are, for text
  int64_t least = 0, most = INT64_MAX;    // for numbers
};

std::span<const Setting> all_settings();
std::string environment_name(const Setting& setting);
std::string text_of(const Settings& settings, const Setting& setting);
// The page of the documentation: settings and metrics.
std::string reference_page();

}  // namespace baton::router
