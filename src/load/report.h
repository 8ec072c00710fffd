// Measurements as text for people, and as JSON with the names that vLLM's benchmark writes, so that its readers read ours.
#pragma once

#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <vector>

#include "load/plot.h"
#include "load/statistics.h"

namespace baton::load {

struct Measurement {
  std::string label = {};             // "8 requests/s", "concurrency 4"
  double level = 0;                   // the number in it, for plots over several
  boost::json::object settings = {};  // what was asked of whom; the first members of the JSON
  Objective objective = {};
  Run run = {};
  Summary summary = {};
  std::optional<double> accepted_length = {};  // tokens of a verified block, as the server says
  bool accepted_since_start = false;           // ... in the mean since it was started, not of this run
  // Where records hold only the first piece and the last: the shares of gaps between all of them, in ms.
  std::optional<Series> gaps = {};
  std::vector<Plot> more = {};         // behind the others on the page
  std::string more_text = {};          // behind the figures
  boost::json::object more_json = {};  // likewise
};

std::string text_of(const Measurement& measurement);
// What several runs of one load differ by; empty for less than two.
std::string spread_text(const std::vector<Measurement>& measurements);

// `detailed` adds the gaps between pieces of every answer.
boost::json::object json_of(const Measurement& measurement, bool detailed);
// One measurement as it is, several as {"runs": [...]}; ends with a line feed.
std::string json_text(const std::vector<Measurement>& measurements, bool detailed);

}  // namespace baton::load
