#include "router/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "api/json_text.h"

namespace baton::router {
namespace {

struct Sources {
  const Hub& hub;
  const http::Counters& listener;
  http::ClientLoopCounters loop;
};

// One number, or one for each value of its label.
struct Row {
  std::string_view name;  // behind "baton_router_"; counters without "_total"
  bool counter = true;
  std::string_view help;
  std::function<int64_t(const Sources&)> read{};
  std::string_view label{};
  std::vector<std::string_view> values{};
  std::function<int64_t(const Sources&, size_t)> read_value{};
};

std::vector<Row> make_table() {
  return {
      {"requests_open", false, "Requests that are not completely answered",
       [](const Sources& s) { return static_cast<int64_t>(s.hub.relays.size()); }},
      {"requests_ended",
       true,
       "Requests that were for an instance",
       {},
       "how",
       {"answered", "client_gone", "nobody_ready", "broken", "cut"},
       [](const Sources& s, size_t i) { return s.hub.totals.ended[i]; }},
      {"answers",
       true,
       "Their answers by the first digit of the status",
       {},
       "status",
       {"2xx", "4xx", "5xx"},
       [](const Sources& s, size_t i) { return s.hub.totals.answers[i == 0 ? 2 : i + 3]; }},
      {"retries", true, "Further attempts at another instance", [](const Sources& s) { return s.hub.totals.retries; }},
      {"streams_broken", true, "Streams that ended with an error event because their instance failed",
       [](const Sources& s) { return s.hub.totals.streams_broken; }},
      {"chunks", true, "Pieces of streams handed on", [](const Sources& s) { return s.hub.totals.chunks; }},
      {"answer_bytes", true, "Bytes of answers handed on", [](const Sources& s) { return s.hub.totals.bytes; }},
      {"held_bytes", false, "Bytes of whole answers that wait for their end", [](const Sources& s) { return s.hub.held_bytes; }},
      {"held_back", true, "Times that an instance was not read because the client was slow",
       [](const Sources& s) { return s.hub.totals.held_back; }},
      {"instances_ready", false, "Instances that take requests now",
       [](const Sources& s) { return int64_t{s.hub.fleet.ready(Hub::now())}; }},
      {"prefills_ready", false, "Prefill instances that are ready",
       [](const Sources& s) {
         return std::ranges::count_if(s.hub.fleet.instances(),
                                      [](const Instance& i) { return i.role == Role::kPrefill && i.health == Health::kReady; });
       }},
      {"instance_connections_idle", false, "Connections to instances that are kept", [](const Sources& s) { return s.loop.idle; }},
      {"instance_calls_open", false, "Calls to instances under way, with probes", [](const Sources& s) { return s.loop.open; }},
      {"instance_connects", true, "Connections made to instances", [](const Sources& s) { return s.loop.connects; }},
      {"connections_open", false, "Connections of clients", [](const Sources& s) { return s.listener.connections_open; }},
      {"clients_gone", true, "Clients that went before their answer was complete",
       [](const Sources& s) { return s.listener.clients_gone; }},
      {"slow_readers", true, "Clients that were cut because they did not read", [](const Sources& s) { return s.listener.slow_readers; }},
  };
}

// One number for each instance.
struct InstanceRow {
  std::string_view name;
  bool counter = true;
  std::string_view help;
  double (*read)(const Instance&);
};
constexpr InstanceRow kInstanceRows[] = {
    {"instance_ready", false, "1 if it answers its probes and is ready",
     [](const Instance& i) { return i.health == Health::kReady ? 1.0 : 0.0; }},
    {"instance_requests_open", false, "Requests of this router there", [](const Instance& i) { return static_cast<double>(i.open); }},
    {"instance_sent", true, "Requests sent there", [](const Instance& i) { return static_cast<double>(i.sent); }},
    {"instance_served", true, "Requests that it answered whole", [](const Instance& i) { return static_cast<double>(i.served); }},
    {"instance_failed", true, "Requests that it did not answer, or not whole",
     [](const Instance& i) { return static_cast<double>(i.failed); }},
    {"instance_turned_away", true, "Requests that it had no room for",
     [](const Instance& i) { return static_cast<double>(i.turned_away); }},
    {"instance_breaker_opened", true, "Times that requests were kept away after failures in a row",
     [](const Instance& i) { return static_cast<double>(i.breaker.opened()); }},
    {"instance_blocks", true, "Blocks of prompts sent there", [](const Instance& i) { return static_cast<double>(i.blocks); }},
    {"instance_blocks_matched", true, "Those that it had been sent before, from the beginning of the prompt",
     [](const Instance& i) { return static_cast<double>(i.blocks_matched); }},
    {"instance_running", false, "Requests that run there, by its own word",
     [](const Instance& i) { return static_cast<double>(i.figures.running); }},
    {"instance_waiting", false, "Requests that wait there, by its own word",
     [](const Instance& i) { return static_cast<double>(i.figures.waiting); }},
    {"instance_cached_ratio", false, "Share of its prompts that its cache had, by its own word",
     [](const Instance& i) { return i.figures.cached; }},
    {"instance_hand_over_seconds", false, "Mean time from the order of a prompt to its landing, by its own word",
     [](const Instance& i) { return i.figures.hand_over_ms / 1e3; }},
};

const std::vector<Row>& table() {
  static const std::vector<Row> rows = make_table();
  return rows;
}

std::string full_name(std::string_view name, bool counter) { return fmt::format("baton_router_{}{}", name, counter ? "_total" : ""); }

void append_head(std::string& out, const std::string& name, bool counter, std::string_view help) {
  fmt::format_to(std::back_inserter(out), "# HELP {} {}.\n# TYPE {} {}\n", name, help, name, counter ? "counter" : "gauge");
}

std::string_view breaker_name(Breaker::State state) {
  return state == Breaker::State::kClosed ? "closed" : state == Breaker::State::kOpen ? "open" : "trial";
}

}  // namespace

std::string metrics_text(const Hub& hub, const http::Counters& listener, const std::string& version) {
  const Sources sources{.hub = hub, .listener = listener, .loop = hub.loop->counters()};
  std::string out =
      fmt::format("# HELP baton_build_info The program.\n# TYPE baton_build_info gauge\nbaton_build_info{{version=\"{}\"}} 1\n", version);
  for (const Row& row : table()) {
    const std::string name = full_name(row.name, row.counter);
    append_head(out, name, row.counter, row.help);
    if (row.values.empty()) fmt::format_to(std::back_inserter(out), "{} {}\n", name, row.read(sources));
    for (size_t i = 0; i < row.values.size(); ++i)
      fmt::format_to(std::back_inserter(out), "{}{{{}=\"{}\"}} {}\n", name, row.label, row.values[i], row.read_value(sources, i));
  }
  for (const InstanceRow& row : kInstanceRows) {
    const std::string name = full_name(row.name, row.counter);
    append_head(out, name, row.counter, row.help);
    for (const Instance& i : hub.fleet.instances())
      if (!i.url.empty()) fmt::format_to(std::back_inserter(out), "{}{{instance=\"{}\"}} {}\n", name, i.url, row.read(i));
  }
  return out;
}

std::string metrics_reference() {
  std::string out = "\n## Metrics\n\n`GET /metrics` in the text format of Prometheus.\n\n| name | kind | label | |\n|---|---|---|---|\n";
  const auto kind = [](bool counter) { return counter ? "counter" : "gauge"; };
  for (const Row& row : table()) {
    std::string values;
    for (const std::string_view v : row.values) values += fmt::format("{}{}", values.empty() ? "" : ", ", v);
    const std::string label = row.label.empty() ? "" : fmt::format("`{}`: {}", row.label, values);
    out += fmt::format("| `{}` | {} | {} | {} |\n", full_name(row.name, row.counter), kind(row.counter), label, row.help);
  }
  for (const InstanceRow& row : kInstanceRows)
    out += fmt::format("| `{}` | {} | `instance`: its URL | {} |\n", full_name(row.name, row.counter), kind(row.counter), row.help);
  return out;
}

std::string fleet_json(const Hub& hub, const std::string& version, bool draining) {
  std::string out = R"({"version":)";
  api::append_string(out, version);
  const Totals& t = hub.totals;
  fmt::format_to(std::back_inserter(out),
                 R"(,"role":"router","draining":{},"requests_open":{},"ready":{},"retries":{},"streams_broken":{},"instances":[)", draining,
                 hub.relays.size(), hub.fleet.ready(Hub::now()), t.retries, t.streams_broken);
  bool first = true;
  for (const Instance& i : hub.fleet.instances()) {
    if (i.url.empty()) continue;
    out += std::exchange(first, false) ? R"({"url":)" : R"(,{"url":)";
    api::append_string(out, i.url);
    out += R"(,"role":)";
    api::append_string(out, name_of(i.role));
    out += R"(,"health":)";
    api::append_string(out, name_of(i.health));
    out += R"(,"why":)";
    api::append_string_or_null(out, i.why);
    fmt::format_to(std::back_inserter(out),
                   R"(,"registered":{},"leaving":{},"breaker":"{}","open":{},"elsewhere":{},"sent":{},"served":{},"failed":{},)"
                   R"("turned_away":{},"blocks":{},"blocks_matched":{},"running":{},"waiting":{},"cached":{:.4f},"hand_over_ms":{:.3f}}})",
                   i.registered, i.leaving, breaker_name(i.breaker.state()), i.open, i.elsewhere, i.sent, i.served, i.failed, i.turned_away,
                   i.blocks, i.blocks_matched, i.figures.running, i.figures.waiting, i.figures.cached, i.figures.hand_over_ms);
  }
  return out + "]}";
}

}  // namespace baton::router
