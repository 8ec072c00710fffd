// Two results of the same load: how much each figure changed, and how sure that is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace baton::load {

// What is compared of one run, as json_of wrote it.
struct Figures {
  std::string label = {};
  std::string load = {};  // the load as asked, to tell whether requests can be compared one by one
  int64_t failed = 0;
  std::vector<double> ttft_ms = {}, tpot_ms = {}, e2e_ms = {};  // per request, in the order of the workload; NaN: failed, or it has none
  std::vector<double> output_per_second = {};
  double output_rate = 0;
};
// A file with one run or with several. `where` names it in messages.
Result<std::vector<Figures>> parse_figures(std::string_view json, const std::string& where);

struct Change {
  std::string name = {};
  double first = 0, second = 0;
  double ratio = 1, low = 1, high = 1;  // second / first, and its 95 % interval
  bool sure() const { return low > 1 || high < 1; }
};
struct Comparison {
  std::string label = {};
  bool paired = false;  // request by request, since both were asked the same
  std::vector<Change> changes = {};
  std::vector<std::string> notes = {};
};

// Intervals by bootstrap: requests are drawn anew (as pairs where both loads are the same), for throughput stretches of a tenth of the run.
// Everything drawn comes from a fixed seed: the same files give the same text.
Comparison compare(const Figures& first, const Figures& second);
std::string text_of(const Comparison& comparison, const std::string& first, const std::string& second);

}  // namespace baton::load
