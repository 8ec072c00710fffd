#include "speculate/block.h"

#include <algorithm>

namespace baton::speculate {

End end_with(int32_t token, int64_t generated, const Limits& limits) {
  if (generated > limits.min_tokens && std::find(limits.stop_tokens.begin(), limits.stop_tokens.end(), token) != limits.stop_tokens.end())
    return End::kStop;
  return generated >= limits.most ? End::kLength : End::kNone;
}

Kept keep(std::span<const int32_t> block, int64_t generated, const Limits& limits) {
  for (size_t i = 0; i < block.size(); ++i) {
    const auto count = static_cast<int32_t>(i) + 1;
    if (const End end = end_with(block[i], generated + count, limits); end != End::kNone) return {count, end};
  }
  return {static_cast<int32_t>(block.size()), End::kNone};
}

int32_t drafts_that_fit(int32_t wanted, int64_t position, int64_t rows_limit) {
  return static_cast<int32_t>(std::clamp<int64_t>(rows_limit - position - 1, 0, std::max(wanted, 0)));
}

}  // namespace baton::speculate
