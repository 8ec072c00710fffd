// Which constraint holds each slot's draws: the executor's side of engine/constraint.h.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/constraint.h"
#include "engine/cycle_executor.h"
#include "sched/cycle.h"

namespace baton::engine {

class SlotConstraints {
 public:
  explicit SlotConstraints(int32_t slots) : slots_(static_cast<size_t>(slots)) {}

  // `constraint` may be null: then the slot's draws are free. A choice that comes back to a slot goes on where its constraint is.
  void bind(const sched::Bind& bind, Constraint* constraint);

  // Before the draws of the tokens at `position` and behind each of the drafts that follow it: a mask for each, one more than drafts, for
  // ops::SamplingRow::allowed, valid until the slot's next lead() or bind(); null if every token may come. The constraint is led along the
  // drafts as far as they may come at all; masks behind are of no use, and nothing is drawn with them that counts.
  std::span<const uint32_t* const> lead(int32_t slot, int32_t position, std::span<const int32_t> drafts);

  // After them: how many of `drawn` count, which is one entry longer than `drafts`. Entries become sched::kConstraintOver or
  // sched::kConstraintFailed where that is what comes of them; then `result` has a problem more. `index`: of drawn[0] in result.tokens.
  int32_t settle(int32_t slot, std::span<const int32_t> drafts, std::span<int32_t> drawn, int32_t index, CycleResult& result);

 private:
  struct Slot {
    Constraint* constraint = nullptr;  // stays when its choice has left the slot, and is not looked at any more
    int32_t next_position = 0;         // of the token that it has to be told next
    int32_t ended = 0;                 // what every further draw comes to, if not 0: a cycle that is launched already may draw once more
    size_t words = 0;                  // of a mask
    size_t told = 0;                   // drafts that it was led along
    int32_t stopped = 0;               // what becomes of the draw behind these, if not 0
    bool refused = false;              // it did not take the next draft, although its mask did
    std::optional<Error> problem;      // why
    std::vector<uint32_t> masks;
    std::vector<const uint32_t*> allowed;
  };
  Slot& at(int32_t slot) { return slots_[static_cast<size_t>(slot)]; }
  static void lead(Slot& s, std::span<const int32_t> drafts);

  std::vector<Slot> slots_;
};

}  // namespace baton::engine
