// Which constraint holds each slot's draws: the executor's side of engine/constraint.h.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
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

  // Before a draw: the mask for ops::SamplingRow::allowed, valid until the slot's next allowed() or bind(); null if every token may come.
  const uint32_t* allowed(const sched::Draw& draw);
  // After it: what comes of result.tokens[index]. The token stays, or becomes sched::kConstraintOver or sched::kConstraintFailed, and then
  // `result` has a problem more.
  void settle(const sched::Draw& draw, int32_t index, CycleResult& result);

 private:
  struct Slot {
    Constraint* constraint = nullptr;  // stays when its choice has left the slot, and is not looked at any more
    int32_t next_position = 0;         // of the token that it has to be told next
    int32_t ended = 0;                 // what every further draw comes to, if not 0: a cycle that is launched already may draw once more
    std::optional<Error> problem;      // not reported yet
    std::vector<uint32_t> mask;
  };
  Slot& at(int32_t slot) { return slots_[static_cast<size_t>(slot)]; }

  std::vector<Slot> slots_;
};

}  // namespace baton::engine
