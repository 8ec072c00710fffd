// A model of no sense: writes at random what a grammar lets through, with a leaning towards ends.
#pragma once

#include <time.h>

#include <bit>
#include <random>
#include <vector>

#include "text/grammar.h"
#include "text/tokenizer.h"

namespace baton::text {

struct RandomOutput {
  std::vector<int32_t> ids;  // without the stop id
  bool ended = false;        // else it was cut
  std::string wrong;         // not empty: the matcher failed
  bool too_slow = false;     // with its limit of time
  int64_t masks = 0;
  double mask_us = 0, worst_mask_us = 0;
};

// Time that others had the processor does not count.
inline double thread_us() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) / 1e3;
}

inline std::vector<int32_t> allowed_in(std::span<const int32_t> row) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < row.size(); ++i)
    for (auto word = static_cast<uint32_t>(row[i]); word != 0; word &= word - 1)
      ids.push_back(static_cast<int32_t>(i * 32) + std::countr_zero(word));
  return ids;
}

inline RandomOutput write_at_random(GrammarMatcher& matcher, const Tokenizer& tokenizer, std::span<const int32_t> stop_ids,
                                    std::mt19937_64& random, size_t most_tokens) {
  RandomOutput output;
  std::vector<int32_t> row(matcher.row_words());
  while (output.ids.size() < most_tokens) {
    const double begin = thread_us();
    const auto filled = matcher.fill(row);
    const double took = thread_us() - begin;
    ++output.masks;
    output.mask_us += took;
    output.worst_mask_us = std::max(output.worst_mask_us, took);
    if (!filled.ok()) {
      output.wrong = filled.error().message;
      output.too_slow = filled.error().kind == Error::Kind::kExhausted;
      return output;
    }
    const std::vector<int32_t> allowed = allowed_in(row);
    if (allowed.empty()) {
      output.wrong = "nothing is allowed";
      return output;
    }
    // Of a few candidates the shortest, most of the time: brackets and quotes close sooner so.
    int32_t id = allowed[random() % allowed.size()];
    for (int i = static_cast<int>(random() % 24); i > 0; --i)
      if (const int32_t other = allowed[random() % allowed.size()]; tokenizer.bytes(other).size() < tokenizer.bytes(id).size()) id = other;
    for (const int32_t stop : stop_ids)
      if ((row[static_cast<size_t>(stop) / 32] >> stop % 32 & 1) != 0 && random() % 4 != 0) id = stop;
    const auto accepted = matcher.accept(id);
    if (!accepted.ok() || !*accepted) {
      output.wrong = accepted.ok() ? "an allowed token was not accepted" : accepted.error().message;
      return output;
    }
    if (matcher.terminated()) {
      output.ended = true;
      return output;
    }
    output.ids.push_back(id);
  }
  return output;
}

}  // namespace baton::text
