// Patterns and lengths of strings, as patterns of how JSON writes those strings. The library holds the characters between the quotes to a
// pattern as they stand, so that a pattern that matches a quote, a backslash or a line end would break the JSON.
#pragma once

#include <boost/json/value.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace baton::text {

// `pattern` is a regular expression as JSON Schema has it (ECMA-262, without look-around, references back and \p). Control characters that
// JSON has no short escape for are left out. Fails where nothing is left of a character or class.
Result<std::string> json_pattern(std::string_view pattern);

// A pattern of so many characters, with no control characters but tabs and line ends. Said by a range, since the library's inverted classes
// let through bytes that are no characters, and each of those counts in what a client reads.
std::string any_characters(int64_t least, std::optional<int64_t> most);

// The schema with every pattern and every length of a string replaced so. Only for schemas that check_schema let through.
Result<boost::json::value> with_json_strings(const boost::json::value& schema);

}  // namespace baton::text
