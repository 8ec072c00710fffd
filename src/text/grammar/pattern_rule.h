// Regular expressions as rules of the grammar library's EBNF, for the whole of a string.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace baton::text {

// `pattern` is a regular expression as JSON Schema has it (ECMA-262, without look-around, references back, word boundaries and \p).
// `in_json`: of the characters between the quotes of a JSON string, so that those which JSON escapes are written by their short escapes, or
// left out of classes that name what they do not contain; otherwise of plain text. Output is held to the whole pattern. The library's own
// reading of patterns would let through backslashes as they stand and break the JSON, and is slower by far.
Result<std::string> pattern_rule(std::string_view pattern, bool in_json);

// Text of so many characters, without control characters but tabs and line ends.
std::string length_rule(int64_t least, std::optional<int64_t> most);

}  // namespace baton::text
