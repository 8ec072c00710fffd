#include "load/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/random/mersenne_twister.hpp>
#include <boost/random/uniform_int_distribution.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>

#include "load/statistics.h"

namespace baton::load {
namespace {

namespace json = boost::json;

constexpr int kResamples = 1000;
constexpr size_t kLeastSamples = 5;
constexpr size_t kStretches = 10;

// Null where a request has no such figure.
std::optional<std::vector<double>> list_at(const json::object& o, const char* key, double scale) {
  const json::value* v = o.if_contains(key);
  if (v == nullptr || !v->is_array()) return std::nullopt;
  std::vector<double> out;
  for (const json::value& x : v->get_array()) {
    if (!x.is_null() && !x.is_number()) return std::nullopt;
    out.push_back(x.is_null() ? std::numeric_limits<double>::quiet_NaN() : x.to_number<double>() * scale);
  }
  return out;
}

std::optional<Figures> figures_of(const json::object& o) {
  Figures f;
  if (const json::value* label = o.if_contains("label"); label != nullptr && label->is_string()) f.label = label->get_string();
  if (const json::value* load = o.if_contains("load"); load != nullptr) f.load = json::serialize(*load);
  const auto ttft = list_at(o, "ttfts", 1e3), tpot = list_at(o, "tpots", 1e3), e2e = list_at(o, "e2els", 1e3);
  const auto output = list_at(o, "output_tokens_per_second", 1);
  const json::value* errors = o.if_contains("errors");
  const json::value* rate = o.if_contains("output_throughput");
  if (!ttft || !tpot || !e2e || !output || errors == nullptr || !errors->is_array() || rate == nullptr || !rate->is_number())
    return std::nullopt;
  f.ttft_ms = *ttft;
  f.tpot_ms = *tpot;
  f.e2e_ms = *e2e;
  f.output_per_second = *output;
  f.output_rate = rate->to_number<double>();
  const json::array& list = errors->get_array();
  if (list.size() != f.ttft_ms.size() || list.size() != f.tpot_ms.size() || list.size() != f.e2e_ms.size()) return std::nullopt;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_string()) return std::nullopt;
    if (list[i].get_string().empty()) continue;
    ++f.failed;
    f.ttft_ms[i] = f.tpot_ms[i] = f.e2e_ms[i] = std::numeric_limits<double>::quiet_NaN();
  }
  return f;
}

using Statistic = std::function<double(const std::vector<double>& sorted)>;

double mean_of(const std::vector<double>& x) { return std::accumulate(x.begin(), x.end(), 0.0) / static_cast<double>(x.size()); }
Statistic percentile_at(double share) {
  return [share](const std::vector<double>& x) { return percentile(x, share); };
}

class Bootstrap {
 public:
  // The intervals of statistic(second) / statistic(first), for all statistics from the same draws.
  std::vector<Change> changes(const std::vector<std::pair<std::string, Statistic>>& statistics, const std::vector<double>& first,
                              const std::vector<double>& second, bool paired) {
    std::vector<double> a = first, b = second;
    std::sort(a.begin(), a.end());
    std::sort(b.begin(), b.end());
    std::vector<Change> out;
    for (const auto& [name, of] : statistics) out.push_back({.name = name, .first = of(a), .second = of(b), .ratio = of(b) / of(a)});
    std::vector<std::vector<double>> ratios(statistics.size());
    for (int r = 0; r < kResamples; ++r) {
      draw(first, second, paired, a, b);
      std::sort(a.begin(), a.end());
      std::sort(b.begin(), b.end());
      for (size_t s = 0; s < statistics.size(); ++s) ratios[s].push_back(statistics[s].second(b) / statistics[s].second(a));
    }
    for (size_t s = 0; s < statistics.size(); ++s) {
      std::sort(ratios[s].begin(), ratios[s].end());
      out[s].low = percentile(ratios[s], 0.025);
      out[s].high = percentile(ratios[s], 0.975);
    }
    return out;
  }

 private:
  void draw(const std::vector<double>& first, const std::vector<double>& second, bool paired, std::vector<double>& a,
            std::vector<double>& b) {
    a.resize(first.size());
    b.resize(second.size());
    using Index = boost::random::uniform_int_distribution<size_t>;
    for (size_t i = 0; i < a.size(); ++i) {
      const size_t k = Index(0, first.size() - 1)(random_);
      a[i] = first[k];
      if (paired) b[i] = second[k];
    }
    if (paired) return;
    for (double& x : b) x = second[Index(0, second.size() - 1)(random_)];
  }

  boost::random::mt19937_64 random_{20};
};

// Drops what either (paired) or each by itself has no figure for.
void keep_numbers(std::vector<double>& a, std::vector<double>& b, bool paired) {
  if (!paired) {
    for (auto* x : {&a, &b}) std::erase_if(*x, [](double v) { return std::isnan(v); });
    return;
  }
  size_t kept = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) continue;
    a[kept] = a[i];
    b[kept++] = b[i];
  }
  a.resize(kept);
  b.resize(kept);
}

// Means of equal stretches of whole seconds; neighbouring seconds depend on one another, stretches hardly.
std::vector<double> stretches_of(const std::vector<double>& per_second) {
  std::vector<double> out;
  const size_t whole = per_second.empty() ? 0 : per_second.size() - 1;  // the last second is not full
  if (whole < kStretches) return out;
  const size_t size = whole / kStretches;
  for (size_t s = 0; s < kStretches; ++s) {
    const auto from = per_second.begin() + static_cast<std::ptrdiff_t>(s * size);
    out.push_back(std::accumulate(from, from + static_cast<std::ptrdiff_t>(size), 0.0) / static_cast<double>(size));
  }
  return out;
}

}  // namespace

Result<std::vector<Figures>> parse_figures(std::string_view text, const std::string& where) {
  const Error wrong{Error::Kind::kInvalid, fmt::format("{} is not what baton bench serve --json writes", where)};
  boost::system::error_code failed;
  const json::value value = json::parse({text.data(), text.size()}, failed);
  const json::object* root = failed ? nullptr : value.if_object();
  if (root == nullptr) return wrong;
  std::vector<Figures> out;
  if (const json::value* runs = root->if_contains("runs"); runs != nullptr && runs->is_array()) {
    for (const json::value& r : runs->get_array()) {
      const auto f = r.is_object() ? figures_of(r.get_object()) : std::nullopt;
      if (!f) return wrong;
      out.push_back(*f);
    }
  } else {
    const auto f = figures_of(*root);
    if (!f) return wrong;
    out.push_back(*f);
  }
  if (out.empty()) return wrong;
  return out;
}

Comparison compare(const Figures& first, const Figures& second) {
  Comparison c;
  c.label = first.label == second.label ? first.label : first.label + " / " + second.label;
  c.paired = first.load == second.load && first.ttft_ms.size() == second.ttft_ms.size();
  if (first.failed + second.failed > 0)
    c.notes.push_back(fmt::format("{} and {} requests failed and are left out of the latencies", first.failed, second.failed));
  Bootstrap bootstrap;
  const std::vector<double> a = stretches_of(first.output_per_second), b = stretches_of(second.output_per_second);
  if (a.empty() || b.empty()) {
    c.notes.push_back(fmt::format("a run of less than {} s tells nothing of how throughput varies: {:.1f} and {:.1f} tokens/s out",
                                  kStretches + 1, first.output_rate, second.output_rate));
  } else {
    c.changes = bootstrap.changes({{"output tokens/s", mean_of}}, a, b, false);
  }
  const auto add = [&](const std::string& name, std::vector<double> x, std::vector<double> y) {
    keep_numbers(x, y, c.paired);
    if (x.size() < kLeastSamples || y.size() < kLeastSamples) {
      c.notes.push_back(fmt::format("fewer than {} requests have a {}", kLeastSamples, name));
      return;
    }
    std::vector<std::pair<std::string, Statistic>> statistics{{"mean " + name, mean_of}};
    for (const int p : {50, 90, 99}) statistics.emplace_back(fmt::format("p{} {}", p, name), percentile_at(p / 100.0));
    const std::vector<Change> changes = bootstrap.changes(statistics, x, y, c.paired);
    c.changes.insert(c.changes.end(), changes.begin(), changes.end());
  };
  add("TTFT ms", first.ttft_ms, second.ttft_ms);
  add("TPOT ms", first.tpot_ms, second.tpot_ms);
  add("E2E ms", first.e2e_ms, second.e2e_ms);
  return c;
}

std::string text_of(const Comparison& c, const std::string& first, const std::string& second) {
  std::string out = fmt::format("{}first {}, second {}; {}\n", c.label.empty() ? "" : "=== " + c.label + "\n", first, second,
                                c.paired ? "the same load, compared request by request" : "different loads, compared as a whole");
  out += fmt::format("{:<18}{:>12}{:>12}{:>10}{:>22}\n", "", "first", "second", "change", "95 % interval");
  const auto percent = [](double ratio) { return (ratio - 1) * 100; };
  for (const Change& x : c.changes)
    out += fmt::format("{:<18}{:>12.2f}{:>12.2f}{:>+8.1f} %{:>+10.1f} to {:>+6.1f} %{}\n", x.name, x.first, x.second, percent(x.ratio),
                       percent(x.low), percent(x.high), x.sure() ? "" : "  not told apart");
  for (const std::string& n : c.notes) out += "note: " + n + "\n";
  return out;
}

}  // namespace baton::load
