// By what the pages of a sequence are known in a prefix tree: their tokens; or, where what a page holds depends on the token behind it, too
// (look_ahead 1), tokens 1 ... 64 of each page.
//
// Then token 0 goes into the salt. Different first tokens never give one salt the same value, nor a private salt one that is shared.
#pragma once

#include <cstdint>
#include <span>

namespace baton::cache {

// Salts of requests that share nothing have the highest bit.
inline constexpr uint64_t kPrivateSalt = uint64_t{1} << 63U;

inline uint64_t tree_salt(uint64_t salt, int32_t first_token, int32_t look_ahead) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15U;
  if (look_ahead == 0) return salt;
  return (salt & kPrivateSalt) | ((salt + kOdd * static_cast<uint64_t>(first_token)) & ~kPrivateSalt);
}

inline std::span<const int32_t> tree_units(std::span<const int32_t> tokens, int32_t look_ahead) {
  return tokens.subspan(static_cast<size_t>(look_ahead));
}

}  // namespace baton::cache
