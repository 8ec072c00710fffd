#include "sim/cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <cmath>

namespace baton::sim {
namespace {

constexpr double kMicro = 1e6;

std::vector<double> points(double most) {
  std::vector<double> out{1};
  while (out.back() < most || out.size() < 2) out.push_back(out.back() * 1.5);
  return out;
}

// The piece of the grid in which x lies, or the outermost one on its side; how far it is into it.
size_t piece(const std::vector<double>& points, double x, double& into) {
  const auto above = std::upper_bound(points.begin() + 1, points.end() - 1, x);
  const auto i = static_cast<size_t>(above - points.begin()) - 1;
  into = (x - points[i]) / (points[i + 1] - points[i]);
  return i;
}

}  // namespace

double LinearCost::seconds(const CycleLoad& l, double cycles) const {
  const double decode = at(kDecodeRow) * l.decoding + at(kDecodeContext) * l.decode_context;
  return at(kCycle) * (l.decoding > 0 ? cycles : 1) + decode * cycles + at(kPromptRow) * l.prompt_tokens + at(kPromptPast) * l.prompt_past;
}

const char* name_of(LinearCost::Part part) {
  switch (part) {
    case LinearCost::kCycle: return "cycle_us";
    case LinearCost::kDecodeRow: return "decode_row_us";
    case LinearCost::kDecodeContext: return "decode_context_us";
    case LinearCost::kPromptRow: return "prompt_row_us";
    case LinearCost::kPromptPast: return "prompt_past_us";
    case LinearCost::kRequest: return "request_us";
    case LinearCost::kParts: break;
  }
  return "";
}

std::string json_of(const LinearCost& cost) {
  std::string out;
  for (size_t i = 0; i < LinearCost::kParts; ++i)
    out += fmt::format("{}\"{}\": {:.9g}", i == 0 ? "{" : ", ", name_of(static_cast<LinearCost::Part>(i)), cost.parts[i] * kMicro);
  return out + "}\n";
}

Result<LinearCost> parse_cost(std::string_view text, const std::string& where) {
  const auto wrong = [&](const std::string& what) {
    return Error{Error::Kind::kInvalid, fmt::format("{}: {}; --calibrate writes such a file", where, what)};
  };
  boost::system::error_code failed;
  const boost::json::value value = boost::json::parse(text, failed);
  if (failed) return wrong(fmt::format("is not JSON ({})", failed.message()));
  if (!value.is_object()) return wrong("is not a JSON object with the costs of a cycle");
  LinearCost cost;
  for (const auto& [key, number] : value.get_object()) {
    size_t part = 0;
    while (part < LinearCost::kParts && key != name_of(static_cast<LinearCost::Part>(part))) ++part;
    if (part == LinearCost::kParts) return wrong(fmt::format("no cost has the name '{}'", std::string_view(key)));
    const double us = number.is_number() ? number.to_number<double>() : -1;
    if (!(us >= 0) || !std::isfinite(us)) return wrong(fmt::format("'{}' is not a number from 0", std::string_view(key)));
    cost.parts[part] = us / kMicro;
  }
  // Otherwise time could stand still.
  if (!(cost.at(LinearCost::kCycle) > 0)) return wrong("cycle_us has to be above 0");
  return cost;
}

GridCost::Grid::Grid(const std::function<double(double, double)>& f, double most_x, double most_y)
    : x_(points(most_x)), y_(points(most_y)) {
  for (const double x : x_)
    for (const double y : y_) values_.push_back(f(x, y));
}

double GridCost::Grid::at(double x, double y) const {
  double u = 0, v = 0;
  const size_t i = piece(x_, std::max(x, 1.0), u), j = piece(y_, std::max(y, 1.0), v);
  const auto value = [this](size_t a, size_t b) { return values_[a * y_.size() + b]; };
  return (1 - u) * ((1 - v) * value(i, j) + v * value(i, j + 1)) + u * ((1 - v) * value(i + 1, j) + v * value(i + 1, j + 1));
}

GridCost::GridCost(const Functions& f)
    : decode_(f.decode, f.most_requests, f.most_context), prompt_(f.prompt, f.most_rows, f.most_context) {}

double GridCost::seconds(const CycleLoad& l, double cycles) const {
  constexpr double kNothing = 1e-4;  // a cycle without rows: moves, draws from rows that are there
  double seconds = kNothing;
  if (l.decoding > 0) seconds += cycles * decode_.at(l.decoding, l.decode_context / l.decoding);
  if (l.prompt_tokens > 0) seconds += prompt_.at(l.prompt_tokens, l.prompt_past / l.prompt_tokens);
  return seconds;
}

}  // namespace baton::sim
