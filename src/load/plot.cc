#include "load/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace baton::load {
namespace {

constexpr double kLeft = 64, kTop = 34, kWidth = 470, kHeight = 230, kRight = kLeft + kWidth, kBottom = kTop + kHeight;
constexpr std::array<const char*, 4> kColours = {"#1f6feb", "#d1602b", "#2d8a4e", "#8250df"};

struct Span {
  double low = std::numeric_limits<double>::infinity(), high = -std::numeric_limits<double>::infinity();
  void add(double x) {
    low = std::min(low, x);
    high = std::max(high, x);
  }
};

// Round numbers from low to high, about six.
std::vector<double> ticks(double low, double high) {
  const double raw = (high - low) / 5;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  double step = power;
  for (const double m : {1.0, 2.0, 5.0, 10.0})
    if (raw <= m * power) {
      step = m * power;
      break;
    }
  std::vector<double> out;
  for (double t = std::ceil(low / step) * step; t <= high + step * 1e-9; t += step) out.push_back(std::abs(t) < step * 1e-9 ? 0 : t);
  return out;
}

std::vector<double> log_ticks(double low, double high) {
  std::vector<double> out;
  for (double power = std::pow(10, std::floor(std::log10(low))); power <= high; power *= 10)
    for (const double m : {1.0, 2.0, 5.0})
      if (m * power >= low && m * power <= high) out.push_back(m * power);
  return out;
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 && c != '\n' ? ' ' : c;
    }
  }
  return out;
}

Series cumulative(std::string name, std::vector<double> samples) {
  constexpr size_t kMost = 500;
  Series s{.name = std::move(name)};
  std::sort(samples.begin(), samples.end());
  const size_t points = std::min(kMost, samples.size());
  for (size_t i = 0; i < points; ++i) {
    const size_t k = points == 1 ? 0 : i * (samples.size() - 1) / (points - 1);
    s.points.emplace_back(samples[k], static_cast<double>(k + 1) / static_cast<double>(samples.size()));
  }
  return s;
}

std::string svg_of(const Plot& p) {
  Span x, y;
  const auto usable = [&](double at) { return std::isfinite(at) && (!p.log_x || at > 0); };
  for (const Series& s : p.series)
    for (const auto& [px, py] : s.points)
      if (usable(px) && std::isfinite(py)) {
        x.add(px);
        y.add(py);
      }
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 560 330\" font-family=\"sans-serif\" font-size=\"11\">\n"
      "<rect width=\"560\" height=\"330\" fill=\"white\"/>\n<text x=\"{}\" y=\"18\" font-size=\"13\">{}</text>\n",
      kLeft, escaped(p.title));
  if (x.low > x.high) return out + fmt::format("<text x=\"{}\" y=\"{}\">no data</text>\n</svg>\n", kLeft, kTop + 20);
  for (const auto& [name, at] : p.limits)
    if (usable(at)) x.add(at);
  y.add(0);
  if (!p.log_x && x.low > 0 && x.low < 0.5 * x.high) x.low = 0;
  // A curve that does not move needs some room to be drawn in.
  if (x.high <= x.low) x.high = x.low + std::max(1e-9, std::abs(x.low) * 0.1);
  if (y.high <= y.low) y.high = y.low + 1;
  const double from = p.log_x ? std::log(x.low) : x.low, to = p.log_x ? std::log(x.high) : x.high;
  const auto x_of = [&](double v) { return kLeft + kWidth * ((p.log_x ? std::log(v) : v) - from) / (to - from); };
  const auto y_of = [&](double v) { return kBottom - kHeight * (v - y.low) / (y.high - y.low); };
  for (const double t : p.log_x ? log_ticks(x.low, x.high) : ticks(x.low, x.high))
    out += fmt::format("<path d=\"M{0:.1f} {1}V{2}\" stroke=\"#eee\"/><text x=\"{0:.1f}\" y=\"{3}\" text-anchor=\"middle\">{4:g}</text>\n",
                       x_of(t), kTop, kBottom, kBottom + 15, t);
  for (const double t : ticks(y.low, y.high))
    out += fmt::format("<path d=\"M{0} {1:.1f}H{2}\" stroke=\"#eee\"/><text x=\"{3}\" y=\"{4:.1f}\" text-anchor=\"end\">{5:g}</text>\n",
                       kLeft, y_of(t), kRight, kLeft - 6, y_of(t) + 4, t);
  out += fmt::format("<path d=\"M{0} {1}V{2}H{3}\" fill=\"none\" stroke=\"#888\"/>\n", kLeft, kTop, kBottom, kRight);
  out += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kRight, kBottom + 32, escaped(p.x_label));
  out +=
      fmt::format("<text x=\"14\" y=\"{0}\" transform=\"rotate(-90 14 {0})\" text-anchor=\"end\">{1}</text>\n", kTop, escaped(p.y_label));
  for (const auto& [name, at] : p.limits)
    if (usable(at))
      out += fmt::format(
          "<path d=\"M{0:.1f} {1}V{2}\" stroke=\"#c00\" stroke-dasharray=\"4 3\"/><text x=\"{3:.1f}\" y=\"{4}\" fill=\"#c00\" "
          "text-anchor=\"end\">{5}</text>\n",
          x_of(at), kTop, kBottom, x_of(at) - 4, kTop + 12, escaped(name));
  double legend = kLeft;
  for (size_t i = 0; i < p.series.size(); ++i) {
    const Series& s = p.series[i];
    const char* colour = kColours[i % kColours.size()];
    std::string points, marks;
    for (const auto& [px, py] : s.points) {
      if (!usable(px) || !std::isfinite(py)) continue;
      points += fmt::format("{:.1f},{:.1f} ", x_of(px), y_of(py));
      constexpr size_t kFew = 30;
      if (s.points.size() <= kFew)
        marks += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\" fill=\"{}\"/>", x_of(px), y_of(py), colour);
    }
    out += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.8\"{}/>{}\n", points, colour,
                       s.dashed ? " stroke-dasharray=\"6 4\"" : "", marks);
    out += fmt::format("<path d=\"M{0} {1}h18\" stroke=\"{2}\" stroke-width=\"2\"/><text x=\"{3}\" y=\"{4}\">{5}</text>\n", legend,
                       kBottom + 48, colour, legend + 22, kBottom + 52, escaped(s.name));
    legend += 34 + 6.2 * static_cast<double>(s.name.size());
  }
  return out + "</svg>\n";
}

}  // namespace baton::load
