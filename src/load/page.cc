#include "load/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <cmath>

#include "load/plot.h"

namespace baton::load {
namespace {

constexpr double kMs = 1e3;

template <class F>
std::vector<double> samples(const Run& run, F of) {
  std::vector<double> out;
  for (const Record& r : run.records)
    if (r.good()) of(r, out);
  return out;
}

std::string figure(const Plot& plot) { return "<figure>" + svg_of(plot) + "</figure>\n"; }

std::string distributions(const Measurement& m) {
  const auto limit = [](const std::optional<double>& s) {
    std::vector<std::pair<std::string, double>> out;
    if (s) out.emplace_back(fmt::format("limit {:g}", *s * kMs), *s * kMs);
    return out;
  };
  const Objective& o = m.objective;
  const auto plot = [](const char* title, std::vector<double> x, std::vector<std::pair<std::string, double>> limits) {
    return figure({.title = title,
                   .x_label = "ms",
                   .y_label = "share of samples at most so long",
                   .series = {cumulative("", std::move(x))},
                   .limits = std::move(limits),
                   .log_x = true});
  };
  std::string out;
  out += plot("Time to the first token", samples(m.run, [](const Record& r, auto& x) { x.push_back(r.ttft() * kMs); }), limit(o.ttft_s));
  out += plot("Time per output token, by request",
              samples(m.run,
                      [](const Record& r, auto& x) {
                        if (r.has_tpot()) x.push_back(r.tpot() * kMs);
                      }),
              limit(o.tpot_s));
  if (m.gaps)
    out += figure({.title = "Gaps between pieces",
                   .x_label = "ms",
                   .y_label = "share of samples at most so long",
                   .series = {*m.gaps},
                   .log_x = true});
  else
    out += plot("Gaps between pieces",
                samples(m.run,
                        [](const Record& r, auto& x) {
                          for (size_t i = 1; i < r.chunks.size(); ++i) x.push_back((r.chunks[i] - r.chunks[i - 1]) * kMs);
                        }),
                {});
  out += plot("Whole answers", samples(m.run, [](const Record& r, auto& x) { x.push_back(r.e2e() * kMs); }), limit(o.e2e_s));
  return out;
}

std::string over_time(const Measurement& m) {
  Series tokens{.name = "tokens/s out"}, running{.name = "requests under way"};
  for (size_t s = 0; s < m.summary.output_per_second.size(); ++s) {
    const double at = static_cast<double>(s) + 0.5;
    tokens.points.emplace_back(at, m.summary.output_per_second[s]);
    running.points.emplace_back(at, m.summary.running_per_second[s]);
  }
  Series first{.name = "ms to the first token"};
  for (const Record& r : m.run.records)
    if (r.good()) first.points.emplace_back(r.intended, r.ttft() * kMs);
  std::sort(first.points.begin(), first.points.end());
  constexpr size_t kMostPoints = 2000;
  if (const size_t every = first.points.size() / kMostPoints + 1; every > 1) {
    size_t kept = 0;
    for (size_t i = 0; i < first.points.size(); i += every) first.points[kept++] = first.points[i];
    first.points.resize(kept);
  }
  return figure({.title = "Throughput over time", .x_label = "s", .y_label = "tokens/s", .series = {tokens}}) +
         figure({.title = "Load over time", .x_label = "s", .y_label = "requests", .series = {running}}) +
         figure({.title = "First token by time of request", .x_label = "s", .y_label = "ms", .series = {first}});
}

// Which share of requests would keep the objective if all of its limits were so many times as long.
std::string attainment(const Measurement& m) {
  if (!m.objective.any() || m.run.records.empty()) return {};
  Series s{.name = "requests that keep it"};
  for (int i = -20; i <= 20; ++i) {
    const double times = std::exp2(i / 5.0);
    Objective o = m.objective;
    for (auto* limit : {&o.ttft_s, &o.tpot_s, &o.e2e_s})
      if (*limit) **limit *= times;
    const auto kept = std::count_if(m.run.records.begin(), m.run.records.end(), [&](const Record& r) { return keeps(r, o); });
    s.points.emplace_back(times, static_cast<double>(kept) / static_cast<double>(m.run.records.size()));
  }
  return figure({.title = "Objective: share of requests that keep it",
                 .x_label = "limits, in multiples of the objective's",
                 .y_label = "share",
                 .series = {s},
                 .limits = {{"objective", 1}},
                 .log_x = true});
}

// Several loads: what each level of load gives, beside the objective.
std::string levels(const std::vector<Measurement>& all) {
  if (all.size() < 2) return {};
  Series rate{.name = "tokens/s out"}, good{.name = "of requests that keep the objective", .dashed = true};
  Series ttft{.name = "mean TTFT ms"}, ttft_99{.name = "p99 TTFT ms", .dashed = true}, tpot{.name = "mean TPOT ms"},
      tpot_99{.name = "p99 TPOT ms", .dashed = true};
  for (const Measurement& m : all) {
    rate.points.emplace_back(m.level, m.summary.output_rate);
    good.points.emplace_back(m.level, m.summary.good_output_rate);
    ttft.points.emplace_back(m.level, m.summary.ttft.mean);
    ttft_99.points.emplace_back(m.level, m.summary.ttft.p99);
    tpot.points.emplace_back(m.level, m.summary.tpot.mean);
    tpot_99.points.emplace_back(m.level, m.summary.tpot.p99);
  }
  std::vector<Series> rates{rate};
  if (all.front().objective.any()) rates.push_back(good);
  return "<h2>All runs</h2>\n" + figure({.title = "Throughput by load", .x_label = "load", .y_label = "tokens/s", .series = rates}) +
         figure({.title = "First token by load", .x_label = "load", .y_label = "ms", .series = {ttft, ttft_99}}) +
         figure({.title = "Time per token by load", .x_label = "load", .y_label = "ms", .series = {tpot, tpot_99}});
}

}  // namespace

std::string page_of(const std::vector<Measurement>& measurements, const std::string& title) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n"
      "<style>body{{font:15px sans-serif;margin:2em auto;max-width:1180px;color:#222}}pre{{background:#f6f8fa;padding:1em;overflow:auto}}"
      "figure{{display:inline-block;width:560px;max-width:100%;margin:0 1em 1em 0}}svg{{width:100%}}</style></head><body>\n<h1>{0}</h1>\n",
      escaped(title));
  out += levels(measurements);
  for (const Measurement& m : measurements) {
    out += fmt::format("<h2>{}</h2>\n<pre>{}</pre>\n", escaped(m.label.empty() ? "Figures" : m.label), escaped(text_of(m)));
    out += distributions(m) + attainment(m) + over_time(m);
    for (const Plot& p : m.more) out += figure(p);
    out += fmt::format("<details><summary>Settings</summary><pre>{}</pre></details>\n", escaped(boost::json::serialize(m.settings)));
  }
  return out + "</body></html>\n";
}

}  // namespace baton::load
