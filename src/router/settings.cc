#include "router/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "router/metrics.h"

namespace baton::router {
namespace {

std::vector<Setting> make_table() {
  using S = Settings;
  return {
      {"Fleet", "unified", &S::unified, "Instances that do prefill and decode, as http://host:port"},
      {"Fleet", "prefill", &S::prefill, "Instances that do prefill for decode instances, which are told of those that are ready"},
      {"Fleet", "decode", &S::decode, "Instances that answer requests, and order their prompts from prefill instances"},
      {"Fleet", "attempts", &S::attempts, "Instances that a request is tried at, before its first byte", {}, 1, 16},
      {"Fleet", "probe-interval-ms", &S::probe_interval_ms, "Between two probes of an instance's /readyz", {}, 10, 60'000},
      {"Fleet", "probe-timeout-ms", &S::probe_timeout_ms, "Silence of a probe after which an instance gets no requests", {}, 10, 60'000},
      {"Fleet",
       "silence-timeout-ms",
       &S::silence_ms,
       "Silence to all probes after which what runs at an instance is given up: tried elsewhere, or ended with an error",
       {},
       100,
       3'600'000},
      {"Fleet", "connect-timeout-ms", &S::connect_timeout_ms, "For a connection to an instance, with its TLS handshake", {}, 10, 60'000},
      {"Fleet", "fleet-secret-file", &S::secret_file,
       "File with the secret that router and instances share. Needed to listen beyond this machine, unless they have certificates"},
      {"Fleet", "fleet-ca-certs", &S::fleet_ca, "PEM: who signs the certificates of instances; those that the system trusts if empty"},
      {"Fleet", "fleet-certfile", &S::fleet_certificate, "PEM certificate that the router shows to instances"},
      {"Fleet", "fleet-keyfile", &S::fleet_key, "PEM key of that certificate"},

      {"Listener", "host", &S::host, "Address to listen at; 0.0.0.0 for all"},
      {"Listener", "port", &S::port, "Port; 0: any free one", {}, 0, 65535},
      {"Listener", "ssl-certfile", &S::tls_certificate, "PEM certificate chain: serve https"},
      {"Listener", "ssl-keyfile", &S::tls_key, "PEM key of the certificate"},
      {"Listener", "allowed-origins", &S::allowed_origins, "Origins of web pages that may call (CORS); * for all, none by default"},
      {"Listener", "web-page", &S::web_page, "The page of the fleet at /"},

      {"Limits", "max-connections", &S::connections, "Connections of clients at once", {}, 1, 1 << 20},
      {"Limits", "max-body-bytes", &S::body_bytes, "Longest body of a request; beyond it: 413", {}, 1024, int64_t{1} << 30},
      {"Limits", "max-header-bytes", &S::header_bytes, "Longest head of a request; beyond it: 431", {}, 1024, 1 << 20},
      {"Limits",
       "max-stream-bytes",
       &S::stream_bytes,
       "What may wait for a slow reader of a stream. From a quarter of it on, the instance is held back",
       {},
       int64_t{1} << 18,
       int64_t{1} << 30},
      {"Limits",
       "max-answer-bytes",
       &S::answer_bytes,
       "Answers that are kept until they are complete, together; beyond it: 503",
       {},
       int64_t{1} << 16,
       int64_t{1} << 50},
      {"Limits", "keep-alive-timeout", &S::keep_alive_s, "Seconds that an idle connection stays open", {}, 1, 86400},
      {"Limits", "ping-interval", &S::ping_s, "Seconds of silence after which a stream carries a comment", {}, 1, 86400},
      {"Limits",
       "shutdown-timeout",
       &S::shutdown_s,
       "Seconds that requests have to end after SIGTERM; a second one ends them at once",
       {},
       0,
       86400},

      {"Process", "http-threads", &S::http_threads, "Threads that read and write connections of clients", {}, 1, 64},
      {"Process", "log-level", &S::log_level, "Least severity that is logged", {"debug", "info", "warning", "error"}},
      {"Process", "log-requests", &S::log_requests, "A line for each request that ended"},
  };
}

template <class... Fs>
struct Overload : Fs... {
  using Fs::operator()...;
};
template <class... Fs>
Overload(Fs...) -> Overload<Fs...>;

}  // namespace

std::span<const Setting> all_settings() {
  static const std::vector<Setting> table = make_table();
  return table;
}

std::string environment_name(const Setting& setting) {
  std::string out = "BATON_ROUTER_";
  for (const char c : setting.name) out += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return out;
}

std::string text_of(const Settings& settings, const Setting& s) {
  return std::visit(
      Overload{[&](std::string Settings::*member) { return settings.*member; },
               [&](int64_t Settings::*member) { return fmt::format("{}", settings.*member); },
               [&](bool Settings::*member) { return std::string(settings.*member ? "true" : "false"); },
               [&](std::vector<std::string> Settings::*member) { return fmt::format("{}", fmt::join(settings.*member, ",")); }},
      s.member);
}

std::string reference_page() {
  std::string out =
      "# Settings and metrics of `baton router`\n\n"
      "Each setting is a flag (`--name value`) and an environment variable; the flag wins. This page is made by `baton config router` from "
      "the\n"
      "tables in `src/router/settings.cc` and `src/router/metrics.cc`. What the router does: [router.md](router.md).\n";
  std::string_view group;
  for (const Setting& s : all_settings()) {
    if (s.group != group) out += fmt::format("\n## {}\n\n| flag | environment | default | |\n|---|---|---|---|\n", group = s.group);
    std::string value = text_of({}, s);
    if (!value.empty()) value = "`" + value + "`";
    std::string doc(s.doc);
    if (!s.words.empty()) doc += fmt::format(" ({})", fmt::join(s.words, ", "));
    out += fmt::format("| `--{}` | `{}` | {} | {} |\n", s.name, environment_name(s), value, doc);
  }
  return out + metrics_reference();
}

}  // namespace baton::router
