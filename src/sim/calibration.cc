#include "sim/calibration.h"

#include <algorithm>
#include <cmath>

namespace baton::sim {
namespace {

using Point = std::vector<double>;

// From a + t (b - a).
Point between(const Point& a, const Point& b, double t) {
  Point out(a.size());
  for (size_t i = 0; i < a.size(); ++i) out[i] = a[i] + t * (b[i] - a[i]);
  return out;
}

struct Corner {
  double value;
  Point at;
  bool operator<(const Corner& other) const { return value < other.value; }
};

Corner descend(const std::function<double(const Point&)>& f, const Corner& start, double step, int32_t evaluations) {
  std::vector<Corner> corners{start};
  for (size_t i = 0; i < start.at.size(); ++i) {
    Point p = start.at;
    p[i] += step;
    corners.push_back({f(p), p});
  }
  for (auto used = static_cast<int32_t>(corners.size()); used < evaluations;) {
    std::sort(corners.begin(), corners.end());
    Point middle(start.at.size());
    for (size_t c = 0; c + 1 < corners.size(); ++c)
      for (size_t i = 0; i < middle.size(); ++i) middle[i] += corners[c].at[i] / static_cast<double>(corners.size() - 1);
    const auto at = [&](double t) {
      Point p = between(middle, corners.back().at, t);
      ++used;
      return Corner{f(p), std::move(p)};
    };
    Corner reflected = at(-1);
    if (reflected < corners.front()) {
      Corner further = at(-2);
      corners.back() = further < reflected ? std::move(further) : std::move(reflected);
    } else if (reflected < corners[corners.size() - 2]) {
      corners.back() = std::move(reflected);
    } else if (Corner nearer = at(reflected < corners.back() ? -0.5 : 0.5); nearer < std::min(reflected, corners.back())) {
      corners.back() = std::move(nearer);
    } else {
      for (size_t c = 1; c < corners.size(); ++c) {
        corners[c].at = between(corners.front().at, corners[c].at, 0.5);
        corners[c].value = f(corners[c].at);
        ++used;
      }
    }
  }
  return *std::min_element(corners.begin(), corners.end());
}

// Costs are found as logarithms of seconds, so that none is negative and each may be of any size.
LinearCost cost_of(const Point& logs) {
  LinearCost cost;
  for (size_t i = 0; i < logs.size(); ++i) cost.parts[i] = std::exp(logs[i]);
  return cost;
}

}  // namespace

Point least(const std::function<double(const Point&)>& f, Point start, double step, int32_t evaluations, int32_t restarts) {
  Corner best{f(start), std::move(start)};
  for (int32_t i = 0; i < restarts; ++i) {
    best = descend(f, best, step, evaluations);
    step = -step / 2;
  }
  return best.at;
}

ClusterOptions with_cost(ClusterOptions options, const LinearCost& cost) {
  options.cell.prefill.cost = options.cell.decode.cost = std::make_shared<LinearCost>(cost);
  return options;
}

MeasuredRun simulated(const ClusterOptions& options, const MeasuredRun& run) {
  ClusterOptions o = options;
  o.concurrency = run.concurrency;
  o.cell.context_tokens = run.longest;
  const load::Measurement m = measurement_of(run_cluster(o, run.workload, run.arrivals), {}, o.cell.accepted);
  MeasuredRun out;
  out.label = run.label;
  out.ttft_ms = m.summary.ttft.mean;
  out.tpot_ms = m.summary.tpot.mean;
  out.output_rate = m.summary.output_rate;
  return out;
}

LinearCost fit(const ClusterOptions& options, std::span<const MeasuredRun> runs) {
  Point start(LinearCost::kParts);
  for (size_t i = 0; i < start.size(); ++i) {
    constexpr std::array<double, LinearCost::kParts> kGuess{1e-3, 3e-4, 1e-8, 3e-4, 1e-8, 1e-3};
    start[i] = std::log(kGuess[i]);
  }
  const auto error = [&](const Point& logs) {
    const ClusterOptions o = with_cost(options, cost_of(logs));
    double sum = 0;
    // What the runs do not tell stays where it is.
    for (size_t i = 0; i < logs.size(); ++i) sum += 1e-4 * (logs[i] - start[i]) * (logs[i] - start[i]);
    for (const MeasuredRun& run : runs) {
      const MeasuredRun s = simulated(o, run);
      for (const auto& [is, should] :
           {std::pair(s.ttft_ms, run.ttft_ms), std::pair(s.tpot_ms, run.tpot_ms), std::pair(s.output_rate, run.output_rate)})
        if (is > 0 && should > 0) sum += std::log(is / should) * std::log(is / should);
    }
    return sum;
  };
  constexpr int32_t kEvaluations = 250, kRestarts = 4;
  return cost_of(least(error, start, 1, kEvaluations, kRestarts));
}

}  // namespace baton::sim
