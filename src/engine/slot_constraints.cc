#include "engine/slot_constraints.h"

#include <utility>

#include "base/check.h"

namespace baton::engine {

void SlotConstraints::bind(const sched::Bind& bind, Constraint* constraint) {
  Slot& s = at(bind.slot);
  s.constraint = constraint;
  s.next_position = -1;
  s.ended = 0;
  s.problem.reset();
  if (constraint != nullptr) s.mask.resize(constraint->mask_words());
}

const uint32_t* SlotConstraints::allowed(const sched::Draw& draw) {
  Slot& s = at(draw.slot);
  if (s.constraint == nullptr || s.ended != 0) return nullptr;
  // A draw that was left out, or made twice, would put the constraint elsewhere than the text.
  BATON_CHECK(s.next_position < 0 || s.next_position == draw.position);
  s.next_position = draw.position + 1;
  const Result<Constraint::Next> next = s.constraint->next(s.mask);
  if (!next.ok()) {
    s.problem = next.error();
    s.ended = sched::kConstraintFailed;
    return nullptr;
  }
  if (*next == Constraint::Next::kOver) s.ended = sched::kConstraintOver;
  return *next == Constraint::Next::kSome ? s.mask.data() : nullptr;
}

// What was drawn freely because there was no mask to draw with is dropped here.
void SlotConstraints::settle(const sched::Draw& draw, int32_t index, CycleResult& result) {
  Slot& s = at(draw.slot);
  if (s.constraint == nullptr) return;
  int32_t& token = result.tokens[static_cast<size_t>(index)];
  if (s.ended == 0 && token < 0) s.ended = token;
  if (s.ended == 0) {
    if (const Status accepted = s.constraint->accept(token); !accepted.ok()) {
      s.problem = accepted.error();
      s.ended = sched::kConstraintFailed;
    }
  }
  if (s.ended == 0) return;
  token = s.ended;
  if (s.problem) result.problems.push_back({index, *std::exchange(s.problem, std::nullopt)});
}

}  // namespace baton::engine
