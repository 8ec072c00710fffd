#include "server/metrics.h"

#include <fmt/format.h>

#include <vector>

namespace baton::server {
namespace {

using Sources = MetricSources;
enum class Kind : uint8_t { kCounter, kGauge, kHistogram };

struct Row {
  std::string_view name;  // counters without their _total
  Kind kind;
  std::string_view help;
  std::string_view vllm{};  // likewise; empty: it has none
  double (*read)(const Sources&, size_t cell) = nullptr;
  const Histogram* (*histogram)(const Sources&) = nullptr;
  std::string_view label{};
  std::vector<std::string_view> values{};  // of the label
};

constexpr int64_t kMicro = 1'000, kMilli = 1'000'000, kSecond = 1'000'000'000;
// vLLM's edges, so that its dashboards read ours.
constexpr int64_t kFirstEdges[] = {kMilli,        5 * kMilli,   10 * kMilli,  20 * kMilli,  40 * kMilli,  60 * kMilli,   80 * kMilli,
                                   100 * kMilli,  250 * kMilli, 500 * kMilli, 750 * kMilli, kSecond,      2500 * kMilli, 5 * kSecond,
                                   7500 * kMilli, 10 * kSecond, 20 * kSecond, 40 * kSecond, 80 * kSecond, 160 * kSecond};
constexpr int64_t kBetweenEdges[] = {kMilli,       2 * kMilli,    5 * kMilli,   10 * kMilli,  25 * kMilli,  50 * kMilli,  75 * kMilli,
                                     100 * kMilli, 150 * kMilli,  200 * kMilli, 300 * kMilli, 400 * kMilli, 500 * kMilli, 750 * kMilli,
                                     kSecond,      2500 * kMilli, 5 * kSecond,  10 * kSecond, 20 * kSecond, 40 * kSecond};
constexpr int64_t kWholeEdges[] = {300 * kMilli, 500 * kMilli,  800 * kMilli,  kSecond,       1500 * kMilli, 2 * kSecond,  2500 * kMilli,
                                   5 * kSecond,  10 * kSecond,  15 * kSecond,  20 * kSecond,  30 * kSecond,  40 * kSecond, 50 * kSecond,
                                   60 * kSecond, 120 * kSecond, 240 * kSecond, 480 * kSecond, 960 * kSecond};
constexpr int64_t kPrepareEdges[] = {100 * kMicro, 250 * kMicro, 500 * kMicro, kMilli,       2 * kMilli,   5 * kMilli,
                                     10 * kMilli,  25 * kMilli,  50 * kMilli,  100 * kMilli, 500 * kMilli, kSecond};

double count(const std::atomic<int64_t>& value) { return static_cast<double>(value.load(std::memory_order_relaxed)); }
double number(int64_t value) { return static_cast<double>(value); }
double ratio(int64_t part, int64_t whole) { return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0; }
const sched::Metrics& s(const Sources& m) { return m.engine.scheduler; }
const pd::DecodeMetrics& decode(const Sources& m) { return m.engine.role.decode; }
const pd::PrefillMetrics& prefill(const Sources& m) { return m.engine.role.prefill; }

template <auto kMember>
double ours(const Sources& m, size_t cell) {
  if constexpr (requires { (m.server.*kMember).value(cell); })
    return number((m.server.*kMember).value(cell));
  else
    return count(m.server.*kMember);
}
template <auto kMember>
double engine_number(const Sources& m, size_t) {
  return number(m.engine.scheduler.*kMember);
}
template <auto kMember>
double http_number(const Sources& m, size_t) {
  return number(m.http.*kMember);
}
template <auto kMember>
const Histogram* histogram(const Sources& m) {
  return &(m.server.*kMember);
}

std::vector<Row> make_table() {
  using enum Kind;
  std::vector<Row> t = {
      {"requests", kCounter, "Prompts that were taken.", "", ours<&Metrics::requests>},
      {"requests_open", kGauge, "Prompts that are being worked on or wait.", "", ours<&Metrics::open>},
      {"requests_limit", kGauge, "Choices that may run and wait at once; beyond it requests are answered 429.", "",
       [](const Sources& m, size_t) { return number(m.queue_limit); }},
      {"requests_ended",
       kCounter,
       "Choices that ended well, by their finish reason.",
       "request_success",
       ours<&Metrics::ended>,
       nullptr,
       "finished_reason",
       {"stop", "length", "tool_calls"}},
      {"requests_failed",
       kCounter,
       "Requests that were taken and ended with an error, by its cause.",
       "",
       ours<&Metrics::failed>,
       nullptr,
       "cause",
       {"cancelled", "deadline", "constraint", "not_finite", "device", "prefill"}},
      {"requests_refused",
       kCounter,
       "Requests that were not taken, by the reason.",
       "",
       ours<&Metrics::refused>,
       nullptr,
       "reason",
       {"invalid", "unauthorized", "not_found", "queue_full", "busy", "draining", "no_prefill"}},
      {"requests_abandoned",
       kCounter,
       "Requests whose client went away, by what was being done.",
       "",
       ours<&Metrics::cancelled>,
       nullptr,
       "stage",
       {"preparing", "waiting", "answering"}},
      {"prepare_queue", kGauge, "Requests that wait to be read and tokenised.", "",
       [](const Sources& m, size_t) { return number(static_cast<int64_t>(m.preparing)); }},
      {"answer_bytes", kGauge, "Bytes of answers that are kept until they are complete and sent.", "",
       [](const Sources& m, size_t) { return number(m.answer_bytes); }},
      {"ignored_fields", kCounter, "Fields of requests that no endpoint knows.", "", ours<&Metrics::ignored_fields>},

      {"prompt_tokens", kCounter, "Tokens of prompts that were taken.", "prompt_tokens", ours<&Metrics::prompt_tokens>},
      {"prompt_tokens_cached", kCounter, "Of these, tokens whose cache and state were found.", "", ours<&Metrics::cached_tokens>},
      {"generation_tokens", kCounter, "Tokens that clients could see.", "generation_tokens", ours<&Metrics::completion_tokens>},
      {"reasoning_tokens", kCounter, "Of these, tokens of reasoning.", "", ours<&Metrics::reasoning_tokens>},
      {"stream_writes", kCounter, "Writes to event streams.", "", ours<&Metrics::chunks>},

      {"queue_seconds", kHistogram, "From a prompt taken to its first choice admitted.", "request_queue_time_seconds", nullptr,
       histogram<&Metrics::queue>},
      {"time_to_first_token_seconds", kHistogram, "From a prompt taken to its first token.", "time_to_first_token_seconds", nullptr,
       histogram<&Metrics::first_token>},
      {"inter_token_latency_seconds", kHistogram, "Between two tokens of a choice.", "inter_token_latency_seconds", nullptr,
       histogram<&Metrics::between_tokens>},
      {"request_seconds", kHistogram, "From a prompt taken to its end.", "e2e_request_latency_seconds", nullptr,
       histogram<&Metrics::whole>},
      {"prepare_seconds", kHistogram, "Reading, rendering and tokenising a request.", "", nullptr, histogram<&Metrics::preparing>},

      {"sequences_waiting", kGauge, "Choices that wait for a place.", "num_requests_waiting", engine_number<&sched::Metrics::waiting>},
      {"sequences_retracted", kGauge, "Of these, choices that have run and gave way.", "", engine_number<&sched::Metrics::retracted>},
      {"sequences_running", kGauge, "Choices in prefill or decode.", "num_requests_running",
       [](const Sources& m, size_t) { return number(s(m).prefilling + s(m).decoding); }},
      {"sequences_prefilling", kGauge, "Choices whose prompt is being computed.", "", engine_number<&sched::Metrics::prefilling>},
      {"queue_wait_seconds_sum", kCounter, "Time that admitted choices have waited, together.", "",
       [](const Sources& m, size_t) { return number(s(m).queue_wait_sum) / 1e9; }},
      {"queue_admissions", kCounter, "Choices that were admitted, again after giving way.", "", engine_number<&sched::Metrics::admissions>},
      {"engine_mail", kGauge, "Messages that the engine has not read.", "", [](const Sources& m, size_t) { return number(m.engine.mail); }},
      {"engine_tokens", kCounter, "Tokens that the engine has drawn, counted as they come.", "",
       engine_number<&sched::Metrics::generated_tokens>},
      {"cycles", kCounter, "Cycles of the engine.", "", engine_number<&sched::Metrics::cycles>},
      {"cycle_host_seconds_mean", kGauge, "Time of the host per cycle, without waiting.", "",
       [](const Sources& m, size_t) { return m.engine.host_time.mean() / 1e9; }},
      {"prefill_rows", kCounter, "Rows of prompts, also of resumed choices.", "", engine_number<&sched::Metrics::prefill_tokens>},
      {"decode_rows", kCounter, "Rows of decoding.", "", engine_number<&sched::Metrics::decode_tokens>},
      {"stalled_rows", kCounter, "Decoding rows that skipped a cycle for want of a page.", "",
       engine_number<&sched::Metrics::stalled_rows>},
      {"spec_blocks", kCounter, "Verified blocks of choices, with drafts or without.", "spec_decode_num_drafts",
       [](const Sources& m, size_t) { return number(s(m).speculation.blocks); }},
      {"spec_draft_tokens", kCounter, "Tokens that were drafted.", "spec_decode_num_draft_tokens",
       [](const Sources& m, size_t) { return number(s(m).speculation.drafted); }},
      {"spec_accepted_tokens", kCounter, "Of these, tokens that were right.", "spec_decode_num_accepted_tokens",
       [](const Sources& m, size_t) { return number(s(m).speculation.accepted); }},
      {"spec_accepted_length", kGauge, "Tokens per block, all blocks so far; 0: nothing is drafted.", "",
       [](const Sources& m, size_t) { return s(m).speculation.accepted_length(); }},
      {"retractions",
       kCounter,
       "Choices that gave way to others, by where they went.",
       "num_preemptions",
       [](const Sources& m, size_t c) { return number(c == 0 ? s(m).retractions_to_host : s(m).retractions_recomputed); },
       nullptr,
       "to",
       {"host", "recompute"}},

      {"cache_usage_ratio", kGauge, "Pages that somebody holds, of all.", "kv_cache_usage_perc",
       [](const Sources& m, size_t) { return ratio(s(m).pages_held, s(m).pages); }},
      {"pages",
       kGauge,
       "Pages of 64 tokens, by what they are.",
       "",
       [](const Sources& m, size_t c) {
         return number(c == 0 ? s(m).pages_free : c == 1 ? s(m).pages_held : s(m).pages_cached);
       },
       nullptr,
       "state",
       {"free", "held", "cached"}},
      {"slots",
       kGauge,
       "Recurrent states of running choices.",
       "",
       [](const Sources& m, size_t c) { return number(c == 0 ? s(m).slots_free : s(m).slots - s(m).slots_free); },
       nullptr,
       "state",
       {"free", "held"}},
      {"snapshots",
       kGauge,
       "Recurrent states kept at the ends of cached prefixes.",
       "",
       [](const Sources& m, size_t c) {
         return number(c == 0 ? s(m).snapshots_cached : c == 1 ? s(m).snapshots_held : s(m).snapshots);
       },
       nullptr,
       "state",
       {"cached", "held", "room"}},
      {"prefix_cache_queries", kCounter, "Tokens of prompts that were looked up.", "prefix_cache_queries",
       engine_number<&sched::Metrics::prompt_tokens>},
      {"prefix_cache_hits", kCounter, "Of these, tokens that were not computed again.", "prefix_cache_hits",
       engine_number<&sched::Metrics::tokens_matched_state>},
      {"prefix_cache_recomputed", kCounter, "Tokens whose pages were there, but no state behind them.", "",
       engine_number<&sched::Metrics::tokens_recomputed>},
      {"pages_evicted", kCounter, "Cached pages that gave way.", "", engine_number<&sched::Metrics::pages_evicted>},

      {"grammars",
       kCounter,
       "Schemas and grammars, by what came of them.",
       "",
       [](const Sources& m, size_t c) {
         return number(c == 0 ? m.grammars.compiled : c == 1 ? m.grammars.cache_hits : c == 2 ? m.grammars.refused : m.grammars.busy);
       },
       nullptr,
       "result",
       {"compiled", "cached", "refused", "busy"}},

      {"fleet_peers",
       kGauge,
       "Other instances: met, and there to order prompts from.",
       "",
       [](const Sources& m, size_t c) { return number(c == 0 ? m.fleet.met : m.fleet.prefills_there); },
       nullptr,
       "state",
       {"met", "prefill_ready"}},
      {"fleet_messages",
       kCounter,
       "Messages of the hand-over, by what became of them.",
       "",
       [](const Sources& m, size_t c) {
         return number(c == 0 ? m.fleet.sent : c == 1 ? m.fleet.received : m.fleet.dropped);
       },
       nullptr,
       "what",
       {"sent", "received", "dropped"}},
      {"fleet_calls_failed", kCounter, "Calls of other instances that failed.", "",
       [](const Sources& m, size_t) { return number(m.fleet.failed_calls); }},
      {"fleet_gone", kCounter, "Processes of other instances that were found to be gone.", "",
       [](const Sources& m, size_t) { return number(m.fleet.gone); }},
      {"orders",
       kCounter,
       "Orders of a decode instance: new ones, those said again, and those of prompts whose order before had failed.",
       "",
       [](const Sources& m, size_t c) {
         return number(c == 0 ? decode(m).orders : c == 1 ? decode(m).repeated_orders : decode(m).retried);
       },
       nullptr,
       "kind",
       {"new", "repeated", "retried"}},
      {"prompts_ordered",
       kCounter,
       "Prompts that a decode instance ordered, by how that ended.",
       "",
       [](const Sources& m, size_t c) {
         return number(c == 0 ? decode(m).landed : c == 1 ? decode(m).cancelled : c == 2 ? decode(m).expired : decode(m).failed);
       },
       nullptr,
       "end",
       {"landed", "cancelled", "expired", "failed"}},
      {"orders_now",
       kGauge,
       "Prompts that wait for an order, orders that are open, and orders whose memory may still be written to.",
       "",
       [](const Sources& m, size_t c) {
         return number(c == 0 ? decode(m).waiting : c == 1 ? decode(m).open : decode(m).quarantined);
       },
       nullptr,
       "state",
       {"waiting", "open", "quarantined"}},
      {"quarantined_pages", kGauge, "Pages of those.", "", [](const Sources& m, size_t) { return number(decode(m).quarantined_pages); }},
      {"ordered_pages",
       kCounter,
       "Pages of prompts: found here, and ordered.",
       "",
       [](const Sources& m, size_t c) { return number(c == 0 ? decode(m).pages_matched : decode(m).pages_ordered); },
       nullptr,
       "from",
       {"cache", "prefill"}},
      {"hand_over_seconds_sum", kCounter, "From an order to its landing, of all that landed together.", "",
       [](const Sources& m, size_t) { return number(decode(m).hand_over_ns) / 1e9; }},
      {"hand_over_mismatches", kCounter, "Landings whose checksum was another one.", "",
       [](const Sources& m, size_t) { return number(decode(m).mismatches); }},
      {"prefill_jobs",
       kCounter,
       "Orders that a prefill instance took, by how they ended.",
       "",
       [](const Sources& m, size_t c) {
         return number(c == 0 ? prefill(m).done : c == 1 ? prefill(m).revoked : c == 2 ? prefill(m).expired : prefill(m).failed);
       },
       nullptr,
       "end",
       {"done", "revoked", "expired", "failed"}},
      {"prefill_jobs_now",
       kGauge,
       "Orders that run, and those that have ended and are remembered.",
       "",
       [](const Sources& m, size_t c) { return number(c == 0 ? prefill(m).active : prefill(m).remembered); },
       nullptr,
       "state",
       {"active", "remembered"}},
      {"transfer_parts",
       kCounter,
       "Parts of hand-overs, by what became of them.",
       "",
       [](const Sources& m, size_t c) {
         const transfer::Metrics& x = m.engine.role.transfer;
         return number(c == 0 ? x.parts - x.failed : c <= x.failures.size() ? x.failures[c - 1] : x.arrived);
       },
       nullptr,
       "what",
       {"written", "gone", "refused", "too_long", "arrived"}},
      {"transfer_waiting", kGauge, "Parts that are posted and not over.", "",
       [](const Sources& m, size_t) { return number(m.engine.role.transfer.waiting); }},
      {"transfer_bytes",
       kCounter,
       "Bytes that were written into other instances.",
       "",
       [](const Sources& m, size_t c) { return number(c == 0 ? m.engine.role.transfer.page_bytes : m.engine.role.transfer.slot_bytes); },
       nullptr,
       "of",
       {"pages", "states"}},
      {"transfer_seconds_sum", kCounter, "From a part's post to its end, of those that were written together.", "",
       [](const Sources& m, size_t) { return number(m.engine.role.transfer.took_ns) / 1e9; }},

      {"http_connections", kGauge, "Open connections.", "", http_number<&http::Counters::connections_open>},
      {"http_connections_refused", kCounter, "Connections above the limit.", "", http_number<&http::Counters::connections_refused>},
      {"http_streams", kGauge, "Open event streams.", "", http_number<&http::Counters::streams_open>},
      {"http_answers",
       kCounter,
       "Answers, by the first digit of their status.",
       "",
       [](const Sources& m, size_t c) { return number(m.http.answers[c + 1]); },
       nullptr,
       "status",
       {"1xx", "2xx", "3xx", "4xx", "5xx"}},
      {"http_malformed", kCounter, "Requests refused for their form or size.", "", http_number<&http::Counters::malformed>},
      {"http_clients_gone", kCounter, "Clients that went away before their answer was complete.", "",
       http_number<&http::Counters::clients_gone>},
      {"http_slow_readers", kCounter, "Streams that were cut because too much waited for their reader.", "",
       http_number<&http::Counters::slow_readers>},
      {"http_bytes",
       kCounter,
       "Bytes, by direction.",
       "",
       [](const Sources& m, size_t c) { return number(c == 0 ? m.http.bytes_received : m.http.bytes_sent); },
       nullptr,
       "direction",
       {"received", "sent"}},
      {"http_sends", kCounter, "System calls that sent something.", "", http_number<&http::Counters::sends>},
  };
  return t;
}

const std::vector<Row>& table() {
  static const std::vector<Row> t = make_table();
  return t;
}

std::string_view kind_name(Kind kind) { return kind == Kind::kCounter ? "counter" : kind == Kind::kGauge ? "gauge" : "histogram"; }

std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\n') {
      out += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

// A name with its suffix and labels; `more` is a label that all lines of a family have.
std::string series(std::string_view family, std::string_view suffix, std::string_view more, std::string_view label = {},
                   std::string_view value = {}) {
  std::string labels(more);
  if (!label.empty()) labels += fmt::format("{}{}=\"{}\"", labels.empty() ? "" : ",", label, value);
  return labels.empty() ? fmt::format("{}{}", family, suffix) : fmt::format("{}{}{{{}}}", family, suffix, labels);
}

void append_family(std::string& out, const Row& row, const Sources& sources, const std::string& family, std::string_view more) {
  const std::string_view suffix = row.kind == Kind::kCounter && !family.ends_with("_sum") ? "_total" : "";
  fmt::format_to(std::back_inserter(out), "# HELP {}{} {}\n# TYPE {}{} {}\n", family, suffix, row.help, family, suffix,
                 kind_name(row.kind));
  if (row.kind == Kind::kHistogram) {
    const Histogram& h = *row.histogram(sources);
    int64_t below = 0;
    for (size_t b = 0; b < h.edges().size(); ++b) {
      below += h.bucket(b);
      const std::string edge = fmt::format("{}", static_cast<double>(h.edges()[b]) / 1e9);
      fmt::format_to(std::back_inserter(out), "{} {}\n", series(family, "_bucket", more, "le", edge), below);
    }
    below += h.bucket(h.edges().size());
    fmt::format_to(std::back_inserter(out), "{} {}\n", series(family, "_bucket", more, "le", "+Inf"), below);
    fmt::format_to(std::back_inserter(out), "{} {}\n", series(family, "_sum", more), static_cast<double>(h.sum()) / 1e9);
    fmt::format_to(std::back_inserter(out), "{} {}\n", series(family, "_count", more), below);
  } else if (row.values.empty()) {
    fmt::format_to(std::back_inserter(out), "{} {}\n", series(family, suffix, more), row.read(sources, 0));
  } else {
    for (size_t c = 0; c < row.values.size(); ++c)
      fmt::format_to(std::back_inserter(out), "{} {}\n", series(family, suffix, more, row.label, row.values[c]), row.read(sources, c));
  }
}

}  // namespace

Metrics::Metrics()
    : queue(kFirstEdges), first_token(kFirstEdges), between_tokens(kBetweenEdges), whole(kWholeEdges), preparing(kPrepareEdges) {}

std::string metrics_text(const MetricSources& sources, bool vllm) {
  std::string out;
  out.reserve(size_t{16} << 10);
  const std::string model = fmt::format("model_name=\"{}\"", escaped(sources.model));
  fmt::format_to(std::back_inserter(out),
                 "# HELP baton_build_info The program and the model that it serves.\n# TYPE baton_build_info gauge\n"
                 "baton_build_info{{version=\"{}\",{}}} 1\n",
                 escaped(sources.version), model);
  for (const Row& row : table()) append_family(out, row, sources, fmt::format("baton_{}", row.name), {});
  if (!vllm) return out;
  for (const Row& row : table())
    if (!row.vllm.empty()) append_family(out, row, sources, fmt::format("vllm:{}", row.vllm), model);
  return out;
}

std::string metrics_page() {
  std::string out =
      "# Metrics\n\n"
      "`GET /metrics` in the text format of Prometheus. Times are in seconds. With `--metrics-compat vllm` the metrics that vLLM has, too, "
      "also\n"
      "carry its names, with the label `model_name`. This page is made by `baton config metrics` from the table in "
      "`src/server/metrics.cc`.\n\n"
      "| name | kind | label | | vLLM |\n|---|---|---|---|---|\n";
  for (const Row& row : table()) {
    std::string values;
    for (const std::string_view v : row.values) values += fmt::format("{}{}", values.empty() ? "" : ", ", v);
    const std::string label = row.label.empty() ? "" : fmt::format("`{}`: {}", row.label, values);
    const bool total = row.kind == Kind::kCounter && !row.name.ends_with("_sum");
    const std::string alias = row.vllm.empty() ? "" : fmt::format("`vllm:{}{}`", row.vllm, total ? "_total" : "");
    out +=
        fmt::format("| `baton_{}{}` | {} | {} | {} | {} |\n", row.name, total ? "_total" : "", kind_name(row.kind), label, row.help, alias);
  }
  return out;
}

}  // namespace baton::server
