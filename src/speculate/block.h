// What becomes of a block: the tokens that one cycle gives a sequence. Whatever ends a text is looked for token by token, and nothing
// behind the first end exists for anyone: not for the text, its usage, its log-probabilities or the cache.
//
// Threads: none; functions of their arguments.
#pragma once

#include <cstdint>
#include <span>

namespace baton::speculate {

struct Limits {
  int64_t min_tokens = 0;  // stop tokens do not end the text before
  int64_t most = 0;        // max_tokens or the room in the context, whichever is less
  std::span<const int32_t> stop_tokens;
};

enum class End : uint8_t { kNone, kStop, kLength };

// Whether the text ends with `token`, its `generated`th one.
End end_with(int32_t token, int64_t generated, const Limits& limits);

struct Kept {
  int32_t tokens;  // of the block; the last one may be the one that ends the text
  End end;
};
// `generated`: tokens before the block. Tokens are not negative.
Kept keep(std::span<const int32_t> block, int64_t generated, const Limits& limits);

// How many tokens to draft behind an anchor at `position`, of `wanted` ones: rows end before `rows_limit`, and there is one for the anchor.
int32_t drafts_that_fit(int32_t wanted, int64_t position, int64_t rows_limit);

}  // namespace baton::speculate
