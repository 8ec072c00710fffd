#include "load/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>

namespace baton::load {
namespace {

namespace json = boost::json;

void add(std::string& out, const char* name, const Distribution& d) {
  if (d.count == 0) return;
  out += fmt::format("{:<22}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}\n", name, d.mean, d.p50, d.p90, d.p95, d.p99, d.most);
}

void add(json::object& out, const std::string& name, const Distribution& d) {
  out["mean_" + name + "_ms"] = d.mean;
  out["median_" + name + "_ms"] = d.p50;
  out["std_" + name + "_ms"] = d.deviation;
  out["p50_" + name + "_ms"] = d.p50;
  out["p90_" + name + "_ms"] = d.p90;
  out["p95_" + name + "_ms"] = d.p95;
  out["p99_" + name + "_ms"] = d.p99;
  out["max_" + name + "_ms"] = d.most;
}

std::string limits_of(const Objective& o) {
  std::string out;
  const auto limit = [&](const char* name, const std::optional<double>& seconds) {
    if (seconds) out += fmt::format("{}{} < {:g} ms", out.empty() ? "" : ", ", name, *seconds * 1e3);
  };
  limit("TTFT", o.ttft_s);
  limit("TPOT", o.tpot_s);
  limit("E2E", o.e2e_s);
  return out;
}

json::array numbers(const std::vector<double>& list) {
  json::array a;
  for (const double x : list) a.emplace_back(x);
  return a;
}

json::object counts(const std::map<std::string, int64_t>& map) {
  json::object o;
  for (const auto& [name, n] : map) o[name] = n;
  return o;
}

// Per request, in the order of the workload. Where an answer failed, latencies are 0 and `errors` says why, as vLLM writes it.
void add_requests(json::object& out, const Run& run, bool detailed) {
  json::array inputs, outputs, cached, ttfts, tpots, e2els, starts, sent, errors, itls;
  for (const Record& r : run.records) {
    inputs.emplace_back(r.input_tokens >= 0 ? r.input_tokens : r.asked_input);
    outputs.emplace_back(r.good() ? r.tokens() : 0);
    cached.emplace_back(r.cached_tokens);
    ttfts.emplace_back(r.good() ? r.ttft() : 0);
    tpots.push_back(r.good() && r.has_tpot() ? json::value(r.tpot()) : json::value(nullptr));
    e2els.emplace_back(r.good() ? r.e2e() : 0);
    starts.emplace_back(r.intended);
    sent.emplace_back(r.sent);
    errors.emplace_back(r.good() ? "" : r.failure + ": " + r.message);
    if (!detailed) continue;
    json::array gaps;
    for (size_t i = 1; i < r.chunks.size(); ++i) gaps.emplace_back(r.chunks[i] - r.chunks[i - 1]);
    itls.push_back(std::move(gaps));
  }
  out["input_lens"] = std::move(inputs);
  out["output_lens"] = std::move(outputs);
  out["cached_lens"] = std::move(cached);
  out["ttfts"] = std::move(ttfts);
  out["tpots"] = std::move(tpots);
  out["e2els"] = std::move(e2els);
  out["start_times"] = std::move(starts);
  out["sent_times"] = std::move(sent);
  out["errors"] = std::move(errors);
  if (detailed) out["itls"] = std::move(itls);
}

}  // namespace

std::string text_of(const Measurement& m) {
  const Summary& s = m.summary;
  std::string out = m.label.empty() ? std::string() : fmt::format("=== {}\n", m.label);
  out += fmt::format("{} requests completed in {:.2f} s, {} failed, {} not sent\n", s.completed, s.duration_s, s.failed, s.unsent);
  out += fmt::format("throughput: {:.3f} requests/s, {:.1f} tokens/s in, {:.1f} tokens/s out, {:.1f} together\n", s.request_rate,
                     s.input_rate, s.output_rate, s.total_rate);
  out +=
      fmt::format("tokens: {} in ({:.2f} % of them cached), {} out, {:.2f} a piece; {:.1f} requests at once, {} at most\n", s.input_tokens,
                  s.input_tokens > 0 ? 100.0 * static_cast<double>(s.cached_tokens) / static_cast<double>(s.input_tokens) : 0.0,
                  s.output_tokens, s.tokens_per_piece, s.mean_running, m.run.most_at_once);
  if (m.accepted_length)
    out += fmt::format("accepted length: {:.3f} tokens a block{}\n", *m.accepted_length,
                       m.accepted_since_start ? " since the server was started" : "");
  out += fmt::format("{:<22}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}\n", "ms", "mean", "p50", "p90", "p95", "p99", "most");
  add(out, "TTFT", s.ttft);
  add(out, "TPOT", s.tpot);
  add(out, "ITL", s.itl);
  add(out, "E2E", s.e2e);
  // Above a millisecond the two are told apart: requests waited in this program, for a place or because it fell behind.
  if (s.ttft.count > 0 && s.ttft.mean - s.ttft_from_sent.mean > 1) add(out, "TTFT since sent", s.ttft_from_sent);
  add(out, "sent after intended", s.send_lag);
  add(out, "read after received", s.read_lag);
  if (s.completed > 0 && s.output_tokens > 0 && m.run.connections > 0)
    out += fmt::format("this program: {:.1f} us of processor time a piece, {} connections\n",
                       1e6 * m.run.processor_s * s.tokens_per_piece / static_cast<double>(s.output_tokens), m.run.connections);
  if (m.objective.any()) {
    out += fmt::format("objective {}({}): {} of {} requests keep it, {:.3f} requests/s, {:.1f} tokens/s\n",
                       m.objective.name.empty() ? "" : m.objective.name + " ", limits_of(m.objective), s.good, s.completed + s.failed,
                       s.goodput, s.good_output_rate);
    if (s.means_kept) out += fmt::format("  as a limit of the means it is {}\n", *s.means_kept ? "kept" : "missed");
  }
  for (const auto& [kind, n] : s.failures) out += fmt::format("failed: {} x {}, first: {}\n", n, kind, s.messages.at(kind));
  for (const auto& [what, n] : s.mismatches) out += fmt::format("note: {} x {}\n", n, what);
  if (m.run.stopped) out += "note: stopped before all was sent\n";
  return out + m.more_text;
}

std::string spread_text(const std::vector<Measurement>& all) {
  if (all.size() < 2) return {};
  std::string out = fmt::format("{} runs: (largest - smallest) / mean\n", all.size());
  const auto line = [&](const char* name, auto value) {
    double low = value(all.front().summary), high = low, sum = 0;
    for (const Measurement& m : all) {
      const double x = value(m.summary);
      low = std::min(low, x);
      high = std::max(high, x);
      sum += x;
    }
    if (sum > 0) out += fmt::format("  {:<22}{:>8.2f} %\n", name, 100 * (high - low) * static_cast<double>(all.size()) / sum);
  };
  line("output tokens/s", [](const Summary& s) { return s.output_rate; });
  line("mean TTFT", [](const Summary& s) { return s.ttft.mean; });
  line("mean TPOT", [](const Summary& s) { return s.tpot.mean; });
  line("mean ITL", [](const Summary& s) { return s.itl.mean; });
  line("mean E2E", [](const Summary& s) { return s.e2e.mean; });
  return out;
}

json::object json_of(const Measurement& m, bool detailed) {
  const Summary& s = m.summary;
  json::object o = m.settings;
  o["duration"] = s.duration_s;
  o["completed"] = s.completed;
  o["failed"] = s.failed;
  o["unsent"] = s.unsent;
  o["stopped"] = m.run.stopped;
  o["total_input_tokens"] = s.input_tokens;
  o["total_output_tokens"] = s.output_tokens;
  o["total_cached_tokens"] = s.cached_tokens;
  o["request_throughput"] = s.request_rate;
  o["input_throughput"] = s.input_rate;
  o["output_throughput"] = s.output_rate;
  o["total_token_throughput"] = s.total_rate;
  o["tokens_per_piece"] = s.tokens_per_piece;
  o["max_output_tokens_per_s"] =
      s.output_per_second.empty() ? 0 : *std::max_element(s.output_per_second.begin(), s.output_per_second.end());
  o["max_concurrent_requests"] = m.run.most_at_once;
  o["mean_concurrent_requests"] = s.mean_running;
  if (m.objective.any()) {
    json::object limits;
    if (m.objective.ttft_s) limits["ttft_ms"] = *m.objective.ttft_s * 1e3;
    if (m.objective.tpot_s) limits["tpot_ms"] = *m.objective.tpot_s * 1e3;
    if (m.objective.e2e_s) limits["e2el_ms"] = *m.objective.e2e_s * 1e3;
    o["objective"] = std::move(limits);
    o["request_goodput"] = s.goodput;
    o["output_goodput"] = s.good_output_rate;
    o["good_requests"] = s.good;
    if (s.means_kept) o["objective_kept_by_means"] = *s.means_kept;
  }
  if (m.accepted_length) {
    o["spec_decode_acceptance_length"] = *m.accepted_length;
    o["spec_decode_since_server_start"] = m.accepted_since_start;
  }
  add(o, "ttft", s.ttft);
  add(o, "tpot", s.tpot);
  add(o, "itl", s.itl);
  add(o, "e2el", s.e2e);
  add(o, "ttft_since_sent", s.ttft_from_sent);
  add(o, "send_lag", s.send_lag);
  add(o, "read_lag", s.read_lag);
  o["processor_seconds"] = m.run.processor_s;
  o["connections"] = m.run.connections;
  o["errors_by_kind"] = counts(s.failures);
  o["mismatches"] = counts(s.mismatches);
  o["output_tokens_per_second"] = numbers(s.output_per_second);
  o["running_per_second"] = numbers(s.running_per_second);
  for (const auto& [key, value] : m.more_json) o[key] = value;
  add_requests(o, m.run, detailed);
  return o;
}

std::string json_text(const std::vector<Measurement>& measurements, bool detailed) {
  if (measurements.size() == 1) return json::serialize(json_of(measurements.front(), detailed)) + "\n";
  json::array runs;
  for (const Measurement& m : measurements) runs.push_back(json_of(m, detailed));
  return json::serialize(json::object{{"runs", std::move(runs)}}) + "\n";
}

}  // namespace baton::load
