// The byte alphabet of byte-level BPE: each byte stands in tokenizer.json as one printable character (GPT-2's table).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace baton::text {

// The character of each byte. Printable Latin-1 stands for itself, the other bytes for U+0100 onwards in their order.
const std::array<char32_t, 256>& byte_alphabet();

// The bytes that a token of the file stands for, or nothing if one of its characters is none of the alphabet.
std::optional<std::string> token_bytes(std::string_view token);

// The token that would stand in the file for these bytes.
std::string byte_level_text(std::string_view bytes);

}  // namespace baton::text
