// What speculation has done so far.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace baton::speculate {

inline constexpr int32_t kMostDrafts = 15;  // of a sequence in a cycle

struct Metrics {
  int64_t blocks = 0;                                // of sequences, with and without drafts
  int64_t tokens = 0;                                // of these blocks: accepted drafts, and a token of the target each
  int64_t drafted = 0;                               // tokens
  int64_t accepted = 0;                              // of these
  std::array<int64_t, kMostDrafts> drafted_at{};     // by place in the draft
  std::array<int64_t, kMostDrafts> accepted_at{};    // likewise
  std::array<int64_t, kMostDrafts + 2> blocks_of{};  // by their number of tokens

  // A block of `drafts` drafts, of which the first `right` were accepted.
  void add(int32_t drafts, int32_t right) {
    ++blocks;
    tokens += right + 1;
    drafted += drafts;
    accepted += right;
    for (int32_t i = 0; i < drafts; ++i) ++drafted_at[static_cast<size_t>(i)];
    for (int32_t i = 0; i < right; ++i) ++accepted_at[static_cast<size_t>(i)];
    ++blocks_of[static_cast<size_t>(right) + 1];
  }
  void add(const Metrics& o) {
    blocks += o.blocks;
    tokens += o.tokens;
    drafted += o.drafted;
    accepted += o.accepted;
    for (size_t i = 0; i < drafted_at.size(); ++i) drafted_at[i] += o.drafted_at[i];
    for (size_t i = 0; i < accepted_at.size(); ++i) accepted_at[i] += o.accepted_at[i];
    for (size_t i = 0; i < blocks_of.size(); ++i) blocks_of[i] += o.blocks_of[i];
  }

  // Tokens per block; 1 means that drafting is in vain, 0 that nothing has run.
  double accepted_length() const { return blocks > 0 ? static_cast<double>(tokens) / static_cast<double>(blocks) : 0; }
};

}  // namespace baton::speculate
