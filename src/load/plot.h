// Line plots as SVG, complete in themselves.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace baton::load {

struct Series {
  std::string name = {};
  std::vector<std::pair<double, double>> points = {};  // drawn in this order
  bool dashed = false;
};
struct Plot {
  std::string title = {}, x_label = {}, y_label = {};
  std::vector<Series> series = {};
  std::vector<std::pair<std::string, double>> limits = {};  // upright lines at an x
  bool log_x = false;                                       // points at 0 and below are left out
};

std::string svg_of(const Plot& plot);
// Samples as a curve of shares: which part of them is at most x. At most 500 points.
Series cumulative(std::string name, std::vector<double> samples);
// Text as it may stand in HTML and SVG.
std::string escaped(const std::string& text);

}  // namespace baton::load
