// JSON written by hand: appended to a string, without a tree.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace baton::api {

// With quotes. Bytes that are no UTF-8 become U+FFFD.
void append_string(std::string& out, std::string_view text);
// null if empty.
void append_string_or_null(std::string& out, std::string_view text);
void append_int(std::string& out, int64_t value);
// The shortest form that reads back the same; a number that is not finite is written as the largest of its sign.
void append_number(std::string& out, double value);
void append_number(std::string& out, float value);
inline void append_bool(std::string& out, bool value) { out += value ? "true" : "false"; }

}  // namespace baton::api
