#include "sim/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/json/array.hpp>
#include <map>
#include <numeric>
#include <thread>

#include "base/check.h"

namespace baton::sim {
namespace {

// Part `i` of `all`, divided among `parts` as evenly as may be.
int64_t share(int64_t all, int64_t parts, int64_t i) { return all * (i + 1) / parts - all * i / parts; }

// A cell with what is dealt to it.
struct Part {
  CellOptions options;
  load::Workload workload;
  std::vector<double> arrivals;
  std::vector<size_t> conversations;  // where they stood
};

std::vector<Part> deal(const ClusterOptions& o, const load::Workload& workload, const std::vector<double>& arrivals) {
  const int32_t cells = cells_of(o);
  std::vector<Part> parts(static_cast<size_t>(cells));
  // Each gets load in proportion to its instances of decode.
  std::vector<double> due(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    CellOptions& c = parts[i].options = o.cell;
    const auto cell = static_cast<int64_t>(i);
    c.prefills = static_cast<int32_t>(share(o.prefills, cells, cell));
    c.decodes = static_cast<int32_t>(share(o.decodes, cells, cell));
    c.seed = o.cell.seed + i;
    c.concurrency = o.concurrency > 0 ? std::max<int64_t>(1, share(o.concurrency, cells, cell)) : 0;
  }
  for (size_t k = 0; k < workload.size(); ++k) {
    size_t best = 0;
    for (size_t i = 1; i < parts.size(); ++i)
      if (due[i] < due[best]) best = i;
    due[best] += 1.0 / parts[best].options.decodes;
    parts[best].workload.push_back(workload[k]);
    if (!arrivals.empty()) parts[best].arrivals.push_back(arrivals[k]);
    parts[best].conversations.push_back(k);
  }
  return parts;
}

struct Kind {
  int64_t instances = 0;
  double busy = 0, least = 1, most = 0, running = 0;
  int64_t cycles = 0, prompt = 0, cached = 0, retractions = 0;
};

std::map<std::string, Kind> kinds_of(const std::vector<Use>& instances) {
  std::map<std::string, Kind> kinds;
  for (const Use& u : instances) {
    Kind& k = kinds[u.prefills && u.decodes ? "unified" : u.prefills ? "prefill" : "decode"];
    ++k.instances;
    k.busy += u.busy;
    k.least = std::min(k.least, u.busy);
    k.most = std::max(k.most, u.busy);
    k.running += u.mean_running;
    k.cycles += u.cycles;
    k.prompt += u.prompt_tokens;
    k.cached += u.cached_tokens;
    k.retractions += u.retractions;
  }
  return kinds;
}

double part_of(int64_t a, int64_t b) { return b > 0 ? static_cast<double>(a) / static_cast<double>(b) : 0; }

}  // namespace

int32_t cells_of(const ClusterOptions& o) {
  const int32_t most = std::max(1, std::min(o.decodes, o.prefills > 0 ? o.prefills : o.decodes));
  return std::min(most, (o.prefills + o.decodes + router::kMostInstances - 1) / router::kMostInstances);
}

ClusterResult run_cluster(const ClusterOptions& o, const load::Workload& workload, const std::vector<double>& arrivals) {
  std::vector<Part> parts = deal(o, workload, arrivals);
  std::vector<CellResult> results(parts.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < parts.size(); i = next++) {
      if (parts[i].workload.empty()) continue;
      results[i] = Cell(parts[i].options, parts[i].workload, parts[i].arrivals).run();
      parts[i].workload = {};
    }
  };
  std::vector<std::thread> threads;
  for (int32_t t = 1; t < std::min<int32_t>(o.threads, static_cast<int32_t>(parts.size())); ++t) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();

  ClusterResult out;
  out.cells = static_cast<int32_t>(parts.size());
  std::vector<load::Record>& all = out.run.records;
  for (size_t i = 0; i < parts.size(); ++i) {
    CellResult& r = results[i];
    for (load::Record& record : r.records) {
      record.conversation = static_cast<int64_t>(parts[i].conversations[static_cast<size_t>(record.conversation)]);
      all.push_back(std::move(record));
    }
    r.records = {};
    out.gaps.add(r.gaps);
    out.output_per_second.resize(std::max(out.output_per_second.size(), r.output_per_second.size()));
    for (size_t s = 0; s < r.output_per_second.size(); ++s) out.output_per_second[s] += r.output_per_second[s];
    out.instances.insert(out.instances.end(), r.instances.begin(), r.instances.end());
    out.events += r.events;
    out.orders += r.orders;
    out.retried_orders += r.retried_orders;
    out.run.most_at_once += r.most_at_once;
  }
  if (parts.size() > 1)
    std::sort(all.begin(), all.end(), [](const load::Record& a, const load::Record& b) {
      return a.conversation != b.conversation ? a.conversation < b.conversation : a.turn < b.turn;
    });
  out.run.unsent = load::turns_of(workload) - std::ssize(all);
  return out;
}

load::Measurement measurement_of(const ClusterResult& result, const load::Objective& objective, double accepted) {
  load::Measurement m;
  m.objective = objective;
  m.run = result.run;
  m.summary = load::summary_of(m.run, objective);
  load::Summary& s = m.summary;
  s.itl = result.gaps.distribution();
  s.send_lag = {};
  s.tokens_per_piece = accepted;
  s.output_per_second = result.output_per_second;
  s.output_per_second.resize(s.running_per_second.size());
  if (accepted > 1) m.accepted_length = accepted;
  m.gaps = result.gaps.cumulative();

  boost::json::object kinds;
  load::Plot busy{.title = "Instances by use",
                  .x_label = "share of the time in which the device is busy",
                  .y_label = "share of instances",
                  .series = {}};
  m.more_text = fmt::format("{:<10}{:>10}{:>10}{:>10}{:>10}{:>12}{:>12}{:>12}\n", "instances", "", "busy", "least", "most", "sequences",
                            "cached", "retracted");
  for (const auto& [name, k] : kinds_of(result.instances)) {
    const auto n = static_cast<double>(k.instances);
    m.more_text += fmt::format("{:<10}{:>10}{:>9.1f}%{:>9.1f}%{:>9.1f}%{:>12.1f}{:>11.1f}%{:>12}\n", name, k.instances, 100 * k.busy / n,
                               100 * k.least, 100 * k.most, k.running / n, 100 * part_of(k.cached, k.prompt), k.retractions);
    kinds[name] = boost::json::object{
        {"instances", k.instances},        {"busy", k.busy / n}, {"least_busy", k.least},     {"most_busy", k.most},
        {"mean_sequences", k.running / n}, {"cycles", k.cycles}, {"prompt_tokens", k.prompt}, {"cached_tokens", k.cached},
        {"retractions", k.retractions}};
    std::vector<double> shares;
    for (const Use& u : result.instances)
      if (name == (u.prefills && u.decodes ? "unified" : u.prefills ? "prefill" : "decode")) shares.push_back(u.busy);
    busy.series.push_back(load::cumulative(name, std::move(shares)));
  }
  m.more_text +=
      fmt::format("{} cells, {} events; {} orders, {} ordered again\n", result.cells, result.events, result.orders, result.retried_orders);
  m.more_json = {{"utilisation", std::move(kinds)},
                 {"cells", result.cells},
                 {"events", result.events},
                 {"orders", result.orders},
                 {"retried_orders", result.retried_orders}};
  m.more.push_back(std::move(busy));
  return m;
}

}  // namespace baton::sim
