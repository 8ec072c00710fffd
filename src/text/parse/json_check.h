// Is this text JSON, and of what kind? And what would make a JSON text whole that was cut off?
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace baton::text {

enum class JsonKind : uint8_t { kNull, kBoolean, kInteger, kNumber, kString, kArray, kObject };

// The kind of a text that is one JSON value (RFC 8259) in valid UTF-8, without white space around it; nothing for any other text. A number
// without fraction and exponent is an integer, whatever its size. Values deeper than kMostJsonDepth count as no JSON. An escape of half a
// surrogate pair is let through, as the RFC does.
std::optional<JsonKind> json_kind(std::string_view text);
inline constexpr int kMostJsonDepth = 256;

// `text` is the beginning of an array or object: the shortest whole one that keeps all that it says. Nothing if it is no such beginning.
std::optional<std::string> completed_json(std::string_view text);

// JSON with \uFFFD for every escape of half a surrogate pair: many readers refuse those.
std::string with_whole_surrogates(std::string_view json);

// Appends `text`, valid UTF-8, as the inside of a JSON string.
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace baton::text
