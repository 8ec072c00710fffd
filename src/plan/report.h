// A plan as text for people, as JSON for programs, and as a plot of throughput and time per token over the number of requests.
#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <vector>

#include "plan/planner.h"

namespace baton::plan {

// One layout's plan, with what would help.
struct Variant {
  Machine machine;
  Plan plan;
  std::vector<Change> changes;
};

const char* layout_name(Layout layout);     // "tp", "dp-ep"
const char* drafter_name(Drafter drafter);  // "none", "mtp", "dflash"

std::string text_of(const std::vector<Variant>& variants, const Load& load, const Efficiency& efficiency);
boost::json::object json_of(const std::vector<Variant>& variants, const Load& load, const Efficiency& efficiency);
// A complete SVG document: the curve of each layout, logarithmic in requests.
std::string plot_of(const std::vector<Variant>& variants);

}  // namespace baton::plan
