// How each slot draws: the request's numbers in the form of ops/head.h, and what penalties must know of the tokens so far.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/head.h"
#include "sched/cycle.h"

namespace baton::engine {

class SlotSampling {
 public:
  SlotSampling(int32_t slots, int64_t vocabulary);

  // `history`: Cycle::history's part for this bind.
  void bind(const sched::Bind& bind, const sched::RequestSpec& request, std::span<const int32_t> history);
  // For the token at `position`, of one that follows `drafts` (which have not been drawn): one row more than these, appended to `rows`.
  // Arrays in the rows stay valid until the slot's next bind(), rows() or drawn().
  void rows(int32_t slot, int32_t position, std::span<const int32_t> drafts, std::vector<ops::SamplingRow>& rows);
  // How the slot draws, without what depends on tokens that are not known yet: enough for a guess.
  ops::SamplingRow guess(int32_t slot, int32_t position) const;
  void drawn(int32_t slot, int32_t token);

 private:
  struct Slot {
    ops::SamplingRow row;
    std::vector<ops::LogitBias> bias;
    std::vector<int32_t> stop_tokens;
    bool penalises = false;
    int64_t first_stop = 0;                          // position from which on stop tokens may be drawn
    std::vector<std::vector<ops::SeenToken>> along;  // `seen` behind each of some drafts
    std::vector<ops::SeenToken> seen;
    std::vector<int32_t> place;  // [vocabulary] index into seen, -1: not there; empty until a request of the slot penalises
  };
  void see(Slot& s, int32_t token, bool generated);
  static void unsee(Slot& s, int32_t token);

  std::vector<Slot> slots_;
  int64_t vocabulary_;
};

// Choices of one request draw from streams of their own; choice 0 from the request's.
uint64_t seed_of_choice(uint64_t seed, int32_t choice);

}  // namespace baton::engine
