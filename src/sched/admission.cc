// Who enters: deadlines, order, and what a sequence is given when it starts or comes back.
#include <algorithm>

#include "base/check.h"
#include "sched/scheduler.h"

namespace baton::sched {

using cache::kPageUnits;

void Scheduler::expire(Time now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const auto found = requests_.find(deadlines_.begin()->second);
    BATON_CHECK(found != requests_.end());
    finish_all(*found->second, FinishReason::kDeadline);
  }
  sweep();
}

void Scheduler::admit(Time now, Cycle& cycle) {
  if (failing()) return;
  if (waiting_.empty() || memory_.slots.free_count() == 0) return;
  growing_ = std::count_if(running_.begin(), running_.end(), [this](const Sequence* s) { return will_grow(*s); });
  while (!waiting_.empty() && memory_.slots.free_count() > 0) {
    Sequence& s = **waiting_.begin();
    const size_t before = running_.size();
    if (&s == blocked_ && memory_.returns() == blocked_at_) return;
    if (s.last_cycle > memory_.completed()) return;  // retracted a moment ago: its last token is not known yet
    const int64_t waited = now - s.waiting_since;
    if (!s.has_run) s.waited = waited;
    if (!(s.host.exists() ? admit_retracted(s, cycle) : admit_new(s, cycle))) {
      blocked_ = &s;
      blocked_at_ = memory_.returns();
      return;
    }
    waiting_.erase(waiting_.begin());
    for (size_t i = before; i < running_.size(); ++i) growing_ += will_grow(*running_[i]) ? 1 : 0;
    metrics_.queue_wait_sum += waited;
    metrics_.queue_wait_max = std::max(metrics_.queue_wait_max, waited);
    ++metrics_.admissions;
    if (!s.has_run) {
      --never_run_;
      if (s.choice == 0) metrics_.prompt_tokens += s.request->prompt_tokens();
    }
    s.has_run = true;
  }
}

bool Scheduler::will_grow(const Sequence& s) const {
  return s.state != State::kAwaitFork && std::ssize(s.pages) * kPageUnits < rows_limit(s);
}

// Room for all tokens and pages that it may come to have.
void Scheduler::give_buffers(Sequence& s) {
  if (s.tokens.empty()) {
    if (!spare_.empty()) {
      s.tokens = std::move(spare_.back().tokens);
      s.pages = std::move(spare_.back().pages);
      spare_.pop_back();
    }
    s.tokens.reserve(static_cast<size_t>(rows_limit(s)) + 1);
    s.tokens.assign(s.request->spec.prompt.begin(), s.request->spec.prompt.end());
  }
  s.pages.reserve(static_cast<size_t>((rows_limit(s) + kPageUnits - 1) / kPageUnits));
}

// Into pages_scratch_. Every running sequence that will grow keeps a page within reach: otherwise the newcomer would have to give way at
// once.
bool Scheduler::take_for_admission(int64_t count) {
  const int64_t reachable = int64_t{memory_.pages.free_count()} + memory_.tree.evictable_count();
  if (count + growing_ > reachable) return false;
  pages_scratch_.resize(static_cast<size_t>(count));
  return memory_.take_pages(pages_scratch_);
}

// Path of the longest cached run of the sequence's tokens, of at most limit_pages, in path_.
int32_t Scheduler::match(const Sequence& s, int64_t limit_pages) {
  if (!s.request->spec.cache_prompt || limit_pages <= 0) return 0;
  const auto tokens = s.known().subspan(static_cast<size_t>(options_.look_ahead));
  return memory_.tree.match(tree_salt(s), tokens, std::span(path_).first(static_cast<size_t>(limit_pages)));
}

// A sequence that starts from its tokens: the first time, or after a retraction that found no room on the host.
bool Scheduler::admit_new(Sequence& s, Cycle& cycle) {
  Request& r = *s.request;
  const bool leads = !s.has_run && r.spec.choices > 1 && r.together;
  const int32_t others = leads ? r.spec.choices - 1 : 0;
  if (memory_.slots.free_count() < 1 + others) return false;

  const int64_t known = std::ssize(s.known());
  int64_t needless = known - 1;  // the last token's row is needed for its draw
  if (const int64_t wanted = s.rows_to_score(); s.scored < wanted) needless = std::min(needless, s.scored);
  const int32_t kv = match(s, needless / kPageUnits);
  const int32_t deepest = memory_.snapshots.deepest(std::span(path_).first(static_cast<size_t>(kv)));
  const int32_t shared = deepest + 1;
  const cache::Node node = shared > 0 ? path_[static_cast<size_t>(deepest)] : cache::kRoot;
  const int32_t snapshot = shared > 0 ? memory_.snapshots.of(node) : cache::kNoSnapshot;

  s.computed = int64_t{shared} * kPageUnits;
  const int64_t own = pages_wanted(s) - shared;
  const int64_t each = pages_wanted(s) - shared_prompt_pages(r);  // what another choice has for itself
  memory_.tree.lock(node);                                        // before pages are taken at the cost of others
  if (snapshot != cache::kNoSnapshot) memory_.snapshots.lock(snapshot);
  if (!take_for_admission(own + others * each)) {
    memory_.tree.unlock(node);
    if (snapshot != cache::kNoSnapshot) memory_.snapshots.unlock(snapshot);
    s.computed = 0;
    return false;
  }

  give_buffers(s);
  s.pages.assign(path_.begin(), path_.begin() + shared);
  auto next = pages_scratch_.begin() + own;
  s.pages.insert(s.pages.end(), pages_scratch_.begin(), next);
  s.tree_pages = shared;
  s.node = node;
  s.branch_pages = kv > shared ? kv : 0;
  s.snapshot_pages = shared;
  s.state = State::kPrefill;
  s.landed = false;
  start(s, cycle);
  cycle.before.push_back({shared > 0 ? MoveKind::kRestore : MoveKind::kClearSlot, snapshot, s.slot});
  if (snapshot != cache::kNoSnapshot) memory_.retire(Memory::Kind::kSnapshotLease, snapshot, planned_);
  for (int32_t c = 1; c <= others; ++c) {
    Sequence& other = *r.choices[static_cast<size_t>(c)];
    give_buffers(other);
    other.pages.assign(next, next + each);
    next += each;
    other.state = State::kAwaitFork;
    other.has_run = true;
    other.waited = s.waited;
    start(other, cycle);
  }
  if (!s.has_run) {
    for (const auto& choice : r.choices)
      if (choice.get() == &s || leads) choice->cached_tokens = s.computed;
    if (r.spec.prompt_only && s.computed > 0) tell_computed(s, s.computed);
    if (s.choice > 0) return true;  // counted with the first
    metrics_.tokens_matched_kv += kv * kPageUnits;
    metrics_.tokens_matched_state += s.computed;
    metrics_.tokens_recomputed += kv * kPageUnits - s.computed;
  }
  return true;
}

// A sequence that comes back from the host. Pages that the tree still has are shared, the others are copied back.
bool Scheduler::admit_retracted(Sequence& s, Cycle& cycle) {
  s.computed = s.host.computed >= 0 ? s.host.computed : std::ssize(s.tokens) - 1;
  const int32_t shared = match(s, s.computed / kPageUnits);
  const cache::Node node = shared > 0 ? path_[static_cast<size_t>(shared) - 1] : cache::kRoot;
  memory_.tree.lock(node);
  if (!take_for_admission(std::max<int64_t>(pages_wanted(s), static_cast<int64_t>(s.host.pages.size())) - shared)) {
    memory_.tree.unlock(node);
    s.computed = 0;
    return false;
  }
  s.pages.assign(path_.begin(), path_.begin() + shared);
  s.pages.insert(s.pages.end(), pages_scratch_.begin(), pages_scratch_.end());
  s.tree_pages = shared;
  s.node = node;
  s.branch_pages = 0;
  s.snapshot_pages = static_cast<int32_t>(s.pages.size());  // the ends of its prompt have been passed
  s.state = State::kPrefill;
  start(s, cycle);
  cycle.before.push_back({MoveKind::kSlotFromHost, s.host.slot, s.slot});
  for (auto i = static_cast<size_t>(shared); i < s.host.pages.size(); ++i)
    cycle.before.push_back({MoveKind::kPageFromHost, s.host.pages[i], s.pages[i]});
  if (s.landed) s.state = State::kDecode;  // it gave way before its first draw
  touch(s);
  release_host(s);
  return true;
}

// A slot, and what the executor must know of who is in it.
void Scheduler::start(Sequence& s, Cycle& cycle) {
  const bool taken = memory_.slots.take({&s.slot, 1});
  BATON_CHECK(taken);
  s.drawn = static_cast<int64_t>(s.tokens.size()) - s.request->prompt_tokens();
  bind(s, cycle);
  // A choice that awaits its fork gets its table when the pages before its own are known.
  if (s.state != State::kAwaitFork) edit_table(s, 0, cycle.table_edits);
  touch(s);
  running_.push_back(&s);
}

void Scheduler::bind(const Sequence& s, Cycle& cycle) {
  Bind bind{s.slot,
            s.choice,
            s.request->id,
            static_cast<int32_t>(cycle.history.size()),
            0,
            static_cast<int32_t>(s.request->prompt_tokens()),
            static_cast<int32_t>(rows_limit(s))};
  if (s.request->spec.sampling.penalises()) {
    cycle.history.insert(cycle.history.end(), s.tokens.begin(), s.tokens.end());
    bind.history_count = static_cast<int32_t>(s.tokens.size());
  }
  cycle.binds.push_back(bind);
}

// What landed with its memory since the last cycle; only the executor knows nothing of it.
void Scheduler::bind_landed(Cycle& cycle) {
  for (Sequence* s : landed_) {
    bind(*s, cycle);
    if (s->reset_ring) cycle.before.push_back({MoveKind::kResetRing, -1, s->slot});
    edit_table(*s, 0, cycle.table_edits);
    touch(*s);
  }
  landed_.clear();
}

}  // namespace baton::sched
