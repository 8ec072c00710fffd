// Measurements as one HTML page with tables and plots, complete in itself: it fetches nothing and runs no script.
#pragma once

#include <string>
#include <vector>

#include "load/report.h"

namespace baton::load {

std::string page_of(const std::vector<Measurement>& measurements, const std::string& title);

}  // namespace baton::load
