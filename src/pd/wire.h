// Messages as bytes: what crosses between processes.
//
//   "BtPd" | version (1 byte) | kind (1 byte) | from | to | low water | the message's fields in their order
//
// Whole numbers are little-endian and have a fixed size, lists are a count and their entries. Bytes that are no message, of another
// version, too short, too long or with a negative count are refused as a whole; what a message says is judged by the end that hears it.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.h"
#include "pd/message.h"

namespace baton::pd {

inline constexpr uint8_t kWireVersion = 1;
inline constexpr int64_t kMostTokens = int64_t{1} << 24;  // of an order

std::vector<std::byte> encode(const Envelope& envelope);
// kInvalid: what is wrong with the bytes. The same message always has the same bytes, and other bytes are none.
Result<Envelope> decode(std::span<const std::byte> bytes);

}  // namespace baton::pd
