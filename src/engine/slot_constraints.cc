#include "engine/slot_constraints.h"

#include <utility>

#include "base/check.h"
#include "speculate/acceptance.h"

namespace baton::engine {

void SlotConstraints::bind(const sched::Bind& bind, Constraint* constraint) {
  Slot& s = at(bind.slot);
  s.constraint = constraint;
  s.next_position = -1;
  s.ended = 0;
  s.problem.reset();
  if (constraint != nullptr) s.words = constraint->mask_words();
}

std::span<const uint32_t* const> SlotConstraints::lead(int32_t slot, int32_t position, std::span<const int32_t> drafts) {
  Slot& s = at(slot);
  s.allowed.assign(drafts.size() + 1, nullptr);
  s.told = 0;
  s.stopped = 0;
  s.refused = false;
  if (s.constraint == nullptr || s.ended != 0) return s.allowed;
  // A draw that was left out, or made twice, would put the constraint elsewhere than the text.
  BATON_CHECK(s.next_position < 0 || s.next_position == position);
  s.next_position = position;
  s.masks.resize(s.words * (drafts.size() + 1));
  lead(s, drafts);
  return s.allowed;
}

void SlotConstraints::lead(Slot& s, std::span<const int32_t> drafts) {
  for (size_t i = 0;; ++i) {
    const std::span<uint32_t> mask = std::span(s.masks).subspan(i * s.words, s.words);
    const Result<Constraint::Next> next = s.constraint->next(mask);
    if (!next.ok()) {
      s.problem = next.error();
      s.stopped = sched::kConstraintFailed;
      return;
    }
    if (*next == Constraint::Next::kOver) s.stopped = sched::kConstraintOver;
    if (*next == Constraint::Next::kSome) s.allowed[i] = mask.data();
    if (s.stopped != 0 || i == drafts.size()) return;
    const auto draft = static_cast<size_t>(drafts[i]);
    if (s.allowed[i] != nullptr && (mask[draft / 32] >> draft % 32 & 1U) == 0) return;  // the target will draw another one
    if (const Status accepted = s.constraint->accept(drafts[i]); !accepted.ok()) {
      s.problem = accepted.error();
      s.refused = true;
      return;
    }
    ++s.told;
  }
}

// What was drawn freely because there was no mask to draw with is dropped here.
int32_t SlotConstraints::settle(int32_t slot, std::span<const int32_t> drafts, std::span<int32_t> drawn, int32_t index,
                                CycleResult& result) {
  Slot& s = at(slot);
  if (s.constraint == nullptr) return speculate::count_of(drafts, drawn);
  if (s.ended != 0) {
    drawn[0] = s.ended;
    return 1;
  }
  if (s.stopped != 0) drawn[s.told] = s.stopped;
  if (s.refused && drawn[s.told] == drafts[s.told]) drawn[s.told] = sched::kConstraintFailed;
  const int32_t count = speculate::count_of(drafts, drawn);
  const auto right = static_cast<size_t>(count) - 1;
  int32_t& last = drawn[right];
  const auto fail = [&](const Error& error) {
    s.problem = error;
    last = sched::kConstraintFailed;
  };
  if (last != sched::kConstraintFailed) s.problem.reset();  // of a draft that was wrong
  if (s.told > right)
    if (const Status back = s.constraint->rollback(s.told - right); !back.ok()) fail(back.error());
  if (last >= 0)
    if (const Status accepted = s.constraint->accept(last); !accepted.ok()) fail(accepted.error());
  s.next_position += count;
  if (last >= 0) return count;
  s.ended = last;
  if (s.problem) result.problems.push_back({index + count - 1, *std::exchange(s.problem, std::nullopt)});
  return count;
}

}  // namespace baton::engine
