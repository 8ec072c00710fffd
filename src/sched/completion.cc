// What follows from a completed cycle: pages become cache, forks become sequences, tokens become events, memory comes back.
#include <algorithm>

#include "base/check.h"
#include "ops/head.h"
#include "sched/scheduler.h"
#include "speculate/block.h"

namespace baton::sched {

using cache::kPageUnits;

namespace {

// Why a draw gave no token.
FinishReason reason_of(int32_t drawn) {
  switch (drawn) {
    case ops::kNothingAllowed: return FinishReason::kNothingAllowed;
    case kConstraintFailed: return FinishReason::kConstraint;
    case kConstraintOver: return FinishReason::kStop;
    default: return FinishReason::kNotFinite;
  }
}

}  // namespace

void Scheduler::complete(const Drawn& drawn) {
  BATON_CHECK(in_flight() > 0);
  const int64_t number = memory_.completed() + 1;
  if (number <= failed_through_) return fail();  // it went on with what the failed one left behind
  const Planned& p = planned(number);
  const size_t results = drawn.ends.empty() ? drawn.tokens.size() : drawn.ends.size();
  BATON_CHECK_MSG(results == p.draws.size(), "{} draws were planned, {} came back", p.draws.size(), results);
  for (const Planned::End& end : p.ends) {
    end.sequence->completed_rows = end.computed;
    cache_pages(*end.sequence, end.computed);
    if (end.sequence->request->spec.prompt_only && end.sequence->state != State::kDraining) tell_computed(*end.sequence, end.computed);
  }
  for (Sequence* s : p.forks) activate(*s);
  memory_.complete(number);
  for (size_t i = 0; i < p.scores.size(); ++i)
    if (const Sequence& s = *p.scores[i]; s.state != State::kDraining)
      events_.push_back({.request = s.request->id, .choice = s.choice, .score = static_cast<int32_t>(i), .usage = s.usage(0)});
  for (size_t i = 0; i < results; ++i) deliver(p.draws[i], drawn, i);
  for (const Planned::Shot& shot : p.shots) complete(shot);
  sweep();
  update_gauges();
}

void Scheduler::complete(const Planned::Shot& shot) {
  Sequence& s = *shot.sequence;
  // Retracted meanwhile, or the cycle did not end there.
  if (s.tree_pages < shot.pages || (shot.moves && s.completed_rows != shot.pages * kPageUnits))
    return memory_.snapshots.release(shot.snapshot);
  if (shot.moves) {
    drop_moving(s);
    if (s.state != State::kDraining) {
      if (s.moving_pages == 0) ++moving_;
      s.moving_pages = shot.pages;
      s.moving_snapshot = shot.snapshot;
    }
    ++metrics_.snapshots_taken;
  }
  memory_.snapshots.attach(s.pages[static_cast<size_t>(shot.pages) - 1], shot.snapshot);
}

// Nobody knows what a failed cycle left behind: all that has run ends, and nothing of the caches is used again. That goes for the cycles
// behind it that are launched already, too: nobody enters before the last of them is done and the last lease is back.
void Scheduler::fail() {
  BATON_CHECK(in_flight() > 0);
  const int64_t number = memory_.completed() + 1;
  if (number > failed_through_) failed_through_ = planned_;
  for (const Planned::Shot& shot : planned(number).shots) memory_.snapshots.release(shot.snapshot);
  while (!running_.empty()) finish(*running_.back(), FinishReason::kFailed);
  for (auto i = waiting_.begin(); i != waiting_.end();) {
    Sequence& s = **i++;
    if (s.has_run) finish(s, FinishReason::kFailed);
  }
  pending_edits_.clear();
  memory_.complete(number);
  sweep();
  memory_.flush();
  update_gauges();
}

// Pages that are full of computed rows, whose tokens are known (and the one behind, if it matters), become the tree's. Later cycles write
// behind them.
void Scheduler::cache_pages(Sequence& s, int64_t computed) {
  const RequestSpec& spec = s.request->spec;
  if (s.slot < 0 || (!spec.cache_prompt && spec.choices == 1)) return;
  const int64_t ahead = options_.look_ahead;
  int64_t end = std::min(computed, static_cast<int64_t>(s.tokens.size()) - ahead);
  if (!options_.cache_generated || !spec.cache_prompt) end = std::min(end, s.request->prompt_tokens() - ahead);
  const uint64_t salt = tree_salt(s);
  for (auto i = static_cast<size_t>(s.tree_pages); (static_cast<int64_t>(i) + 1) * kPageUnits <= end; ++i) {
    const std::span<const int32_t, kPageUnits> units(s.tokens.data() + i * kPageUnits + ahead, static_cast<size_t>(kPageUnits));
    const int32_t page = s.pages[i];
    const cache::Node node = memory_.tree.extend(s.node, salt, units, page);
    memory_.tree.lock(node);
    memory_.tree.unlock(s.node);
    s.node = node;
    ++s.tree_pages;
    if (node == page) continue;
    // Somebody else's page holds the same: use that one, and give the own one back when no launched cycle reads it any more.
    s.pages[i] = node;
    pending_edits_.push_back({s.slot, static_cast<int32_t>(i), node});
    memory_.retire(Memory::Kind::kPage, page, planned_);
  }
}

void Scheduler::tell_computed(const Sequence& s, int64_t computed) {
  events_.push_back({.request = s.request->id, .computed = computed, .usage = s.usage(0)});
}

void Scheduler::activate(Sequence& fork) {
  if (fork.state != State::kAwaitFork) return;
  const Sequence& leader = *fork.request->choices.front();
  const auto full = static_cast<int32_t>(shared_prompt_pages(*fork.request));
  BATON_CHECK(leader.tree_pages == full);
  fork.pages.insert(fork.pages.begin(), leader.pages.begin(), leader.pages.begin() + full);
  fork.tree_pages = full;
  fork.node = leader.node;
  memory_.tree.lock(fork.node);
  fork.computed = fork.completed_rows = fork.request->prompt_tokens();
  fork.snapshot_pages = leader.snapshot_pages;
  fork.state = State::kDecode;
  edit_table(fork, 0, pending_edits_);
}

// A block: as many rows count as it has tokens. The text may end before it does; then nothing of what is behind exists.
void Scheduler::deliver(const Planned::Source& from, const Drawn& drawn, size_t draw) {
  Sequence& s = *from.sequence;
  const auto begin = drawn.ends.empty() ? static_cast<int32_t>(draw) : draw == 0 ? 0 : drawn.ends[draw - 1];
  const int32_t end = drawn.ends.empty() ? begin + 1 : drawn.ends[draw];
  if (!from.decodes) {
    BATON_CHECK(end == begin + 1);
    return deliver(s, drawn.tokens[static_cast<size_t>(begin)], begin);
  }
  const int32_t count = end - begin;
  BATON_CHECK(count <= 1 + from.drafts && (count > 0 || s.state == State::kDraining));
  s.completed_rows += count;
  s.drafts -= from.drafts;
  if (s.state == State::kDecode) {
    s.computed += count - 1;
    s.drawn += count - 1;
  }
  if (options_.drafts > 0 && s.state != State::kDraining) {
    const int32_t drafted = drawn.drafted.empty() ? 0 : drawn.drafted[draw];
    metrics_.speculation.add(drafted, count - 1);
    s.draft_length.observe(drafted, count - 1);
    s.drafted_tokens += drafted;
  }
  for (int32_t i = begin; i < end; ++i) {
    const int32_t token = drawn.tokens[static_cast<size_t>(i)];
    if (i > begin && token >= 0 && s.state != State::kDraining) ++s.accepted_tokens;
    deliver(s, token, i);
  }
  cache_pages(s, s.completed_rows);
}

void Scheduler::deliver(Sequence& s, int32_t token, int32_t index) {
  if (s.state == State::kDraining) return;  // it ended before this token
  if (token < 0) return finish(s, reason_of(token), -1, index);
  s.tokens.push_back(token);
  ++metrics_.generated_tokens;
  const RequestSpec& spec = s.request->spec;
  const int64_t generated = static_cast<int64_t>(s.tokens.size()) - s.request->prompt_tokens();
  const speculate::End end = speculate::end_with(token, generated, {spec.min_tokens, s.max_drawn, spec.stop_tokens});
  if (end == speculate::End::kStop) return finish(s, FinishReason::kStop, token, index);
  if (end == speculate::End::kLength) return finish(s, FinishReason::kLength, token, index);
  events_.push_back({.request = s.request->id, .choice = s.choice, .token = token, .draw = index, .usage = s.usage(generated)});
}

// The choice's last event. Its memory follows when no launched cycle touches it: sweep().
void Scheduler::finish(Sequence& s, FinishReason reason, int32_t token, int32_t draw) {
  BATON_CHECK(s.state != State::kDraining);
  Request& r = *s.request;
  if (s.state == State::kWaiting) {
    if (waiting_.erase(&s) > 0 && !s.has_run) --never_run_;
    if (blocked_ == &s) blocked_ = nullptr;
    release_host(s);
  } else {
    std::erase(running_, &s);
    std::erase(landed_, &s);
  }
  if (s.moving_pages > 0) --moving_;
  s.state = State::kDraining;
  draining_.push_back(&s);
  if (reason != FinishReason::kStop && reason != FinishReason::kLength && !r.ended_early) {
    r.ended_early = true;
    r.early_reason = reason;
  }
  --r.unfinished;
  if (r.unfinished == 0) {
    if (r.spec.deadline != kNever) deadlines_.erase({r.spec.deadline, r.id});
    const FinishReason why = r.ended_early ? r.early_reason : reason;
    (why == FinishReason::kCancelled  ? metrics_.cancelled
     : why == FinishReason::kDeadline ? metrics_.expired
     : r.ended_early                  ? metrics_.failed
                                      : metrics_.completed) += 1;
  }
  events_.push_back({.request = r.id,
                     .choice = s.choice,
                     .token = token,
                     .draw = draw,
                     .reason = reason,
                     .last = r.unfinished == 0,
                     .usage = s.usage(std::ssize(s.known()) - r.prompt_tokens())});
}

// Every choice that has not ended yet, the first one last.
void Scheduler::finish_all(Request& r, FinishReason reason) {
  for (size_t c = r.choices.size(); c-- > 0;)
    if (Sequence* s = r.choices[c].get(); s != nullptr && s->state != State::kDraining) finish(*s, reason);
}

// What the sequence holds on the device, once its last launched cycle has completed.
void Scheduler::release(Sequence& s) {
  for (auto i = static_cast<size_t>(s.tree_pages); i < s.pages.size(); ++i) memory_.retire(Memory::Kind::kPage, s.pages[i], s.last_cycle);
  if (s.node != cache::kRoot) memory_.retire(Memory::Kind::kLease, s.node, s.last_cycle);
  if (s.slot >= 0) memory_.retire(Memory::Kind::kSlot, s.slot, s.last_cycle);
  s.pages.clear();
  s.tree_pages = 0;
  s.node = cache::kRoot;
}

void Scheduler::release_host(Sequence& s) {
  if (!s.host.exists()) return;
  memory_.retire(Memory::Kind::kHostSlot, s.host.slot, s.last_cycle);
  for (const int32_t page : s.host.pages) memory_.retire(Memory::Kind::kHostPage, page, s.last_cycle);
  s.host.slot = -1;
  s.host.pages.clear();
}

void Scheduler::sweep() {
  for (size_t i = 0; i < draining_.size();) {
    Sequence& s = *draining_[i];
    if (s.last_cycle > memory_.completed()) {
      ++i;
      continue;
    }
    release(s);
    draining_[i] = draining_.back();
    draining_.pop_back();
    erase(s);
  }
}

void Scheduler::erase(Sequence& s) {
  Request& r = *s.request;
  if (s.tokens.capacity() > 0 && spare_.size() < spare_.capacity()) {
    s.tokens.clear();
    s.pages.clear();
    spare_.push_back({std::move(s.tokens), std::move(s.pages)});
  }
  r.choices[static_cast<size_t>(s.choice)].reset();
  if (--r.present == 0) requests_.erase(r.id);
}

}  // namespace baton::sched
