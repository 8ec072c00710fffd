#include "load/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace baton::load {
namespace {

constexpr double kMs = 1e3;

// What the server counts differently from what was asked, or from what came. None of it fails a request; all of it is reported.
void note_mismatches(const Record& r, std::map<std::string, int64_t>& out) {
  if (r.output_tokens < 0) ++out["answers without usage: pieces were counted as tokens"];
  if (r.output_tokens >= 0 && r.output_tokens < static_cast<int64_t>(r.chunks.size())) ++out["usage below the number of pieces"];
  if (r.tokens() != r.asked_output) ++out[r.tokens() < r.asked_output ? "answers shorter than asked" : "answers longer than asked"];
  if (r.input_tokens >= 0 && r.asked_input > 0 && r.input_tokens != r.asked_input) ++out["prompts of another length than asked"];
  if (r.cached_tokens > r.input_tokens) ++out["more cached tokens than the prompt has"];
}

// Adds `amount` to the seconds that [from, to) touches, each in proportion.
void spread(std::vector<double>& seconds, double from, double to, double amount) {
  if (!(to > from)) return;
  for (auto s = static_cast<size_t>(std::max(from, 0.0)); s < seconds.size() && static_cast<double>(s) < to; ++s) {
    const double inside = std::min(to, static_cast<double>(s + 1)) - std::max(from, static_cast<double>(s));
    seconds[s] += amount * inside / (to - from);
  }
}

}  // namespace

double percentile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - static_cast<double>(low));
}

Distribution distribution_of(std::vector<double> samples) {
  Distribution d;
  if (samples.empty()) return d;
  std::sort(samples.begin(), samples.end());
  const auto n = static_cast<double>(samples.size());
  d.count = static_cast<int64_t>(samples.size());
  d.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / n;
  for (const double x : samples) d.deviation += (x - d.mean) * (x - d.mean) / n;
  d.deviation = std::sqrt(d.deviation);
  d.p50 = percentile(samples, 0.50);
  d.p90 = percentile(samples, 0.90);
  d.p95 = percentile(samples, 0.95);
  d.p99 = percentile(samples, 0.99);
  d.most = samples.back();
  return d;
}

bool keeps(const Record& r, const Objective& o) {
  return r.good() && (!o.ttft_s || r.ttft() < *o.ttft_s) && (!o.tpot_s || !r.has_tpot() || r.tpot() < *o.tpot_s) &&
         (!o.e2e_s || r.e2e() < *o.e2e_s);
}

Summary summary_of(const Run& run, const Objective& objective) {
  Summary s;
  s.unsent = run.unsent;
  double first = run.records.empty() ? 0 : run.records.front().intended, last = first;
  for (const Record& r : run.records) {
    first = std::min(first, r.intended);
    last = std::max(last, r.end);
  }
  s.duration_s = last - first;
  const auto seconds = static_cast<size_t>(std::ceil(std::max(s.duration_s, 0.0)));
  s.output_per_second.assign(seconds, 0);
  s.running_per_second.assign(seconds, 0);
  std::vector<double> ttft, tpot, itl, e2e, from_sent, send_lag;
  int64_t pieces = 0, good_tokens = 0;
  double running = 0;
  for (const Record& r : run.records) {
    send_lag.push_back((r.sent - r.intended) * kMs);
    running += r.end - r.sent;
    spread(s.running_per_second, r.sent - first, r.end - first, r.end - r.sent);
    if (!r.good()) {
      ++s.failed;
      ++s.failures[r.failure];
      s.messages.try_emplace(r.failure, r.message);
      continue;
    }
    ++s.completed;
    note_mismatches(r, s.mismatches);
    s.input_tokens += r.input_tokens >= 0 ? r.input_tokens : r.asked_input;
    s.prompts_counted += r.input_tokens >= 0 ? 1 : 0;
    s.cached_tokens += std::max<int64_t>(r.cached_tokens, 0);
    s.output_tokens += r.tokens();
    pieces += static_cast<int64_t>(r.chunks.size());
    ttft.push_back(r.ttft() * kMs);
    from_sent.push_back((r.chunks.front() - r.sent) * kMs);
    e2e.push_back(r.e2e() * kMs);
    if (r.has_tpot()) tpot.push_back(r.tpot() * kMs);
    for (size_t i = 1; i < r.chunks.size(); ++i) itl.push_back((r.chunks[i] - r.chunks[i - 1]) * kMs);
    const double each = static_cast<double>(r.tokens()) / static_cast<double>(r.chunks.size());
    for (const double at : r.chunks)
      if (seconds > 0) s.output_per_second[std::min(static_cast<size_t>(std::max(at - first, 0.0)), seconds - 1)] += each;
    if (objective.any() && keeps(r, objective)) {
      ++s.good;
      good_tokens += r.tokens();
    }
  }
  if (s.duration_s > 0) {
    s.request_rate = static_cast<double>(s.completed) / s.duration_s;
    s.input_rate = static_cast<double>(s.input_tokens) / s.duration_s;
    s.output_rate = static_cast<double>(s.output_tokens) / s.duration_s;
    s.total_rate = s.input_rate + s.output_rate;
    s.goodput = static_cast<double>(s.good) / s.duration_s;
    s.good_output_rate = static_cast<double>(good_tokens) / s.duration_s;
    s.mean_running = running / s.duration_s;
  }
  if (pieces > 0) s.tokens_per_piece = static_cast<double>(s.output_tokens) / static_cast<double>(pieces);
  s.ttft = distribution_of(std::move(ttft));
  s.tpot = distribution_of(std::move(tpot));
  s.itl = distribution_of(std::move(itl));
  s.e2e = distribution_of(std::move(e2e));
  s.ttft_from_sent = distribution_of(std::move(from_sent));
  s.send_lag = distribution_of(std::move(send_lag));
  std::vector<double> read_lag;
  for (const float lag : run.read_lag_s) read_lag.push_back(static_cast<double>(lag) * kMs);
  s.read_lag = distribution_of(std::move(read_lag));
  if (objective.of_means && s.completed > 0)
    s.means_kept = s.failed == 0 && (!objective.ttft_s || s.ttft.mean < *objective.ttft_s * kMs) &&
                   (!objective.tpot_s || s.tpot.mean < *objective.tpot_s * kMs) &&
                   (!objective.e2e_s || s.e2e.mean < *objective.e2e_s * kMs);
  return s;
}

}  // namespace baton::load
