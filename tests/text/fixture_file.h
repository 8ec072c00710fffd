// Files of fixtures: whole, gzipped or not, as text or as lines of JSON.
#pragma once

#include <boost/json/object.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace baton::text {

// The content of a file; unpacked if its name ends in ".gz".
Result<std::string> read_fixture(const std::filesystem::path& path);

// One object a line; empty lines are skipped.
Result<std::vector<boost::json::object>> read_json_lines(const std::filesystem::path& path);

}  // namespace baton::text
