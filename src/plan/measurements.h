// What ops were measured to reach of their floors.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace baton::plan {

// By the names of Work::op, from 0 to 1.
using Shares = std::map<std::string, double, std::less<>>;

// Either of these texts:
// * JSON lines of the harnesses of bench/gpu: objects with "op", "us" and "floor_us"; other lines are passed over.
// * The JSON of `bench cycle` or `bench prefill`: ops of a whole model with the floors of a kind of GPU. Several of them may make up what
//   a plan counts as one; then their sums are compared. Or a line for each of several, as the "result" that bench/gpu/stay.sh leaves.
// Several shapes and settings of an op may have been tried: its best one counts. `where` names the text in messages; a text without a
// measurement is an error.
Result<Shares> parse_measurements(std::string_view text, const std::string& where);

}  // namespace baton::plan
