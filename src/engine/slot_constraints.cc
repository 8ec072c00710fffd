#include "engine/slot_constraints.h"

#include <utility>

#include "base/check.h"

namespace baton::engine {

SlotConstraints::SlotConstraints(int32_t slots, int64_t vocabulary)
    : slots_(static_cast<size_t>(slots)), words_((static_cast<size_t>(vocabulary) + 31) / 32) {}

void SlotConstraints::bind(const sched::Bind& bind, Constraint* constraint) {
  Slot& s = at(bind.slot);
  s.constraint = constraint;
  s.next_position = -1;
  s.next = Constraint::Next::kAny;
  s.failed = false;
  s.problem.message.clear();
  if (constraint != nullptr) s.mask.resize(words_);
}

const uint32_t* SlotConstraints::allowed(const sched::Draw& draw) {
  Slot& s = at(draw.slot);
  if (s.constraint == nullptr || s.failed) return nullptr;
  // A draw that was left out, or made twice, would put the constraint elsewhere than the text.
  BATON_CHECK(s.next_position < 0 || s.next_position == draw.position);
  s.next_position = draw.position;
  Result<Constraint::Next> next = s.constraint->next(s.mask);
  if (!next.ok()) {
    s.failed = true;
    s.problem = next.error();
    return nullptr;
  }
  s.next = *next;
  return s.next == Constraint::Next::kSome ? s.mask.data() : nullptr;
}

// What was drawn without a mask, because there was none to draw with, is dropped here.
void SlotConstraints::settle(const sched::Draw& draw, int32_t index, CycleResult& result) {
  Slot& s = at(draw.slot);
  int32_t& token = result.tokens[static_cast<size_t>(index)];
  if (s.constraint == nullptr) return;
  if (!s.failed && s.next != Constraint::Next::kOver && token >= 0) {
    if (const Status accepted = s.constraint->accept(token); !accepted.ok()) {
      s.failed = true;
      s.problem = accepted.error();
    }
    ++s.next_position;
  }
  if (s.failed) {
    token = sched::kConstraintFailed;
    // Once: a cycle that was launched before this is known draws again, and nobody hears of it.
    if (!s.problem.message.empty()) result.problems.push_back({index, std::exchange(s.problem, {})});
  } else if (s.next == Constraint::Next::kOver) {
    token = sched::kConstraintOver;
  }
}

}  // namespace baton::engine
