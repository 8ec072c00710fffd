#include "golden/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace baton::golden {

Measures measure(const float* x, const float* golden, int64_t rows, int64_t row_elements, const std::vector<bool>& tied) {
  double worst = 0;
  double largest = 0;
  double error2 = 0;
  double norm2 = 0;
  std::vector<double> per_row;
  for (int64_t r = 0; r < rows; ++r) {
    double e2 = 0;
    double g2 = 0;
    const bool is_tied = !tied.empty() && tied[static_cast<size_t>(r)];
    for (int64_t i = r * row_elements; i < (r + 1) * row_elements; ++i) {
      const double e = double{x[i]} - double{golden[i]};
      if (!std::isfinite(e))
        return {std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};
      if (!is_tied) worst = std::max(worst, std::fabs(e));
      largest = std::max(largest, std::fabs(double{golden[i]}));
      e2 += e * e;
      g2 += double{golden[i]} * double{golden[i]};
    }
    if (!is_tied) error2 += e2;
    norm2 += g2;
    per_row.push_back(std::sqrt(e2) / std::max(std::sqrt(g2), 1e-30));
  }
  if (per_row.empty() || row_elements == 0) return {0, 0, 0};
  const auto middle = per_row.begin() + static_cast<std::ptrdiff_t>((per_row.size() - 1) / 2);
  std::nth_element(per_row.begin(), middle, per_row.end());
  return {worst / std::max(largest, 1e-30), std::sqrt(error2) / std::max(std::sqrt(norm2), 1e-30), *middle};
}

Measures Report::Entry::worst() const {
  Measures w{};
  for (const auto& [prompt, m] : by_prompt)
    for (size_t i = 0; i < w.size(); ++i) w[i] = std::max(w[i], m[i]);
  return w;
}

bool Report::Entry::passed() const {
  if (choices > 0 && different > allowed) return false;
  if (!has_tolerance) return true;
  if (by_prompt.empty()) return false;  // a tolerance without a comparison is a hole in the check, not a pass
  const Measures w = worst();
  for (size_t i = 0; i < w.size(); ++i)
    if (!(w[i] <= tolerance[i])) return false;
  return true;
}

void Report::add(const std::string& kind, int prompt, const Measures& m) {
  Measures& w = entries_[kind].by_prompt[prompt];
  for (size_t i = 0; i < m.size(); ++i) w[i] = std::max(w[i], m[i]);
}

Report Report::merge(const std::vector<Report>& reports, bool tie_prone) {
  Report out = reports.front();
  for (size_t r = 1; r < reports.size(); ++r) {
    for (auto& [kind, entry] : out.entries_) {
      const Entry& other = reports[r].entries_.at(kind);
      entry.different = std::max(entry.different, other.different);
      for (auto& [prompt, m] : entry.by_prompt)
        for (size_t i = 0; i < m.size(); ++i)
          m[i] = tie_prone ? std::min(m[i], other.by_prompt.at(prompt)[i]) : std::max(m[i], other.by_prompt.at(prompt)[i]);
    }
  }
  return out;
}

void Report::add_choices(const std::string& kind, int64_t rows, int64_t different, bool must_match) {
  Entry& e = entries_[kind];
  e.choices += rows;
  e.different += different;
  if (!must_match) e.allowed += rows;
}

void Report::set_tolerance(const std::string& kind, const Measures& t) {
  entries_[kind].tolerance = t;
  entries_[kind].has_tolerance = true;
}

bool Report::passed() const {
  return !entries_.empty() && std::all_of(entries_.begin(), entries_.end(), [](const auto& e) { return e.second.passed(); });
}

void Report::print(const std::string& title) const {
  fmt::print("{}\n", title);
  fmt::print("  {:<16} {:>10} {:>10} {:>10}   {:>10} {:>10} {:>10}  {}\n", "kind", "max", "l2", "median", "tol max", "tol l2", "tol median",
             "verdict");
  for (const auto& [kind, e] : entries_) {
    const Measures worst = e.worst();
    const char* verdict = e.passed() ? "ok" : "FAILED";
    if (e.choices > 0) {
      const char* note = e.allowed >= e.choices ? " (near-ties may flip in this arithmetic)" : "";
      fmt::print("  {:<16} {} of {} choices differ{}  {}\n", kind, e.different, e.choices, note, verdict);
    } else if (e.has_tolerance) {
      fmt::print("  {:<16} {:>10.2e} {:>10.2e} {:>10.2e}   {:>10.2e} {:>10.2e} {:>10.2e}  {}\n", kind, worst[0], worst[1], worst[2],
                 e.tolerance[0], e.tolerance[1], e.tolerance[2], verdict);
    } else {
      fmt::print("  {:<16} {:>10.2e} {:>10.2e} {:>10.2e}   no tolerance stated\n", kind, worst[0], worst[1], worst[2]);
    }
  }
  for (const std::string& note : notes_) fmt::print("  {}\n", note);
}

}  // namespace baton::golden
