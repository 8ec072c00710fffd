// Numbers as Python reads, writes and computes them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/template/value.h"

namespace baton::text::jinja {

// int(text, base), base 0 or 2 to 36: white space around, a sign, single underscores, digits of any script. None for what is no number,
// and for one that is beyond kMostIntegerBits.
std::optional<Value> parse_integer(std::string_view text, int base);
// float(text).
std::optional<double> parse_float(std::string_view text);
// int(d); none for infinities and what is no number.
std::optional<Value> truncated(double d);

// repr(d): the shortest digits that give d again.
std::string float_repr(double d);
// Digits of a whole number in base 2, 8, 10 or 16, in lower case, with '-' in front of negative ones.
std::string integer_digits(const Value& whole, int base = 10);
// round(d, digits), exact: half-way cases by the binary value.
double round_float(double d, int digits);

}  // namespace baton::text::jinja
