// What a cycle does: growth and retraction, a row for every decoding sequence, chunks of prompts.
#include <algorithm>

#include "base/check.h"
#include "sched/scheduler.h"
#include "speculate/block.h"

namespace baton::sched {

using cache::kPageUnits;

bool Scheduler::plan(Time now, Cycle& cycle) {
  BATON_CHECK(in_flight() < kCyclesInFlight);
  cycle.clear();
  cycle.number = ++planned_;
  now_ = now;
  planned(planned_).clear();
  expire(now);
  cycle.table_edits.swap(pending_edits_);
  pending_edits_.clear();
  bind_landed(cycle);
  grow(cycle);  // first: what runs goes before what waits
  admit(now, cycle);
  plan_decode(cycle);
  plan_prefill(cycle);
  update_gauges();
  if (cycle.empty()) {
    --planned_;
    return false;
  }
  ++metrics_.cycles;
  return true;
}

void Scheduler::grow(Cycle& cycle) {
  for (size_t i = 0; i < running_.size();) {
    Sequence* s = running_[i];
    if (s->state == State::kDecode && s->drawn < s->max_drawn) grow(*s, cycle);
    if (i < running_.size() && running_[i] == s) ++i;  // else it, or one before it, was retracted
  }
}

// Pages for the rows of this cycle and for those that may be launched before its result is seen, as if all drafts were right.
void Scheduler::grow(Sequence& s, Cycle& cycle) {
  const auto held = static_cast<int64_t>(s.pages.size());
  if (held * kPageUnits >= std::min(rows_limit(s), s.computed + s.drafts + kCyclesInFlight * int64_t{1 + options_.drafts})) return;
  while (s.state == State::kDecode) {
    for (const int64_t count : {pages_wanted(s) - held, int64_t{1}}) {
      if (count < 1) continue;
      pages_scratch_.resize(static_cast<size_t>(count));
      if (!memory_.take_pages(pages_scratch_)) continue;
      s.pages.insert(s.pages.end(), pages_scratch_.begin(), pages_scratch_.end());
      return edit_table(s, static_cast<int32_t>(held), cycle.table_edits);
    }
    if (held * kPageUnits > s.computed) return;  // not yet in need, or not known to be before drafts in flight have been judged
    // What is on its way back will do; otherwise the last in order gives way, which may be this one.
    if (memory_.retiring_pages() > 0 || memory_.retiring_leases() > 0 || !draining_.empty()) return;
    // Choices behind it that await their fork cannot give way yet, and are no reason to go before them: their prompt goes on.
    Sequence* last = last_retractable();
    if (last == nullptr) return;
    if (last == &s && std::any_of(running_.begin(), running_.end(), [&s](const Sequence* other) { return goes_before(s, *other); })) return;
    retract(*last, cycle);
  }
}

Sequence* Scheduler::last_retractable() {
  const auto awaited = [](const Sequence& s) {  // by forks, which need its pages
    if (s.request->spec.choices == 1) return false;
    return std::any_of(s.request->choices.begin(), s.request->choices.end(),
                       [](const auto& other) { return other != nullptr && other->state == State::kAwaitFork; });
  };
  Sequence* last = nullptr;
  for (Sequence* s : running_)
    if (!awaited(*s) && !s->request->spec.prompt_only && (last == nullptr || goes_before(*last, *s))) last = s;
  return last;
}

void Scheduler::retract(Sequence& s, Cycle& cycle) {
  const int64_t rows = std::min(s.computed + s.drafts, std::ssize(s.pages) * kPageUnits);  // at most
  const auto used = static_cast<size_t>((rows + kPageUnits - 1) / kPageUnits);
  s.host.pages.resize(used);
  if (memory_.host_slots.free_count() > 0 && memory_.host_pages.take(s.host.pages)) {
    const bool taken = memory_.host_slots.take({&s.host.slot, 1});
    BATON_CHECK(taken);
    s.host.computed = s.state == State::kDecode && !s.landed ? -1 : s.computed;
    cycle.before.push_back({MoveKind::kSlotToHost, s.slot, s.host.slot});
    for (size_t i = 0; i < used; ++i) cycle.before.push_back({MoveKind::kPageToHost, s.pages[i], s.host.pages[i]});
    touch(s);
    ++metrics_.retractions_to_host;
  } else {
    s.host.pages.clear();
    ++metrics_.retractions_recomputed;
  }
  release(s);
  s.computed = 0;
  s.state = State::kWaiting;
  s.waiting_since = now_;
  std::erase(running_, &s);
  std::erase_if(cycle.table_edits, [&s](const TableEdit& e) { return e.slot == s.slot; });
  s.slot = -1;
  waiting_.insert(&s);
}

void Scheduler::plan_decode(Cycle& cycle) {
  for (Sequence* s : running_) {
    if (s->state != State::kDecode || s->drawn >= s->max_drawn) continue;
    if (s->landed) {
      s->landed = false;
      plan_draw(*s, kSlotRow, false, 0, cycle);
      touch(*s);
      continue;
    }
    int32_t drafts = drafts_for(*s);
    // With all the pages that it will ever need, its rows end where the executor, which knows its place, ends them.
    if (const int64_t held = std::ssize(s->pages) * kPageUnits; held < rows_limit(*s)) {
      const int64_t rows_at_hand = held - (s->computed + s->drafts);
      if (rows_at_hand <= 0) {
        ++metrics_.stalled_rows;
        continue;
      }
      drafts = static_cast<int32_t>(std::min<int64_t>(drafts, rows_at_hand - 1));
    }
    BATON_CHECK(s->tree_pages * kPageUnits <= s->computed);
    cycle.rows.push_back({s->slot, static_cast<int32_t>(s->computed), 1 + drafts, kDrawnToken, kDrawnToken});
    if (options_.drafts > 0) wait_for_edge(*s, cycle.rows.back(), cycle);
    ++s->computed;
    s->drafts += drafts;
    plan_draw(*s, static_cast<int32_t>(cycle.rows.size()) - 1, true, drafts, cycle);
    touch(*s);
    if (options_.drafts == 0) move_snapshot(*s, cycle);
    metrics_.decode_tokens += 1 + drafts;
  }
}

int32_t Scheduler::drafts_for(const Sequence& s) const {
  const int32_t wanted = options_.adaptive_drafts ? s.draft_length.best(cycle_costs_, options_.drafts) : options_.drafts;
  return speculate::drafts_that_fit(wanted, s.computed, rows_limit(s));
}

void Scheduler::plan_draw(Sequence& s, int32_t rows, bool decodes, int32_t drafts, Cycle& cycle) {
  cycle.draws.push_back({rows, s.slot, static_cast<int32_t>(s.request->prompt_tokens() + s.drawn)});
  planned(planned_).draws.push_back({&s, decodes, drafts});
  ++s.drawn;
}

void Scheduler::plan_prefill(Cycle& cycle) {
  prefills_.clear();
  for (Sequence* s : running_)
    if (s->state == State::kPrefill) prefills_.push_back(s);
  if (prefills_.empty()) return;
  const auto left = [](const Sequence& s) { return static_cast<int64_t>(s.tokens.size()) - s.computed; };
  const auto first =
      std::min_element(prefills_.begin(), prefills_.end(), [](const Sequence* a, const Sequence* b) { return goes_before(*a, *b); });
  std::iter_swap(prefills_.begin(), first);
  std::sort(prefills_.begin() + 1, prefills_.end(),
            [&](const Sequence* a, const Sequence* b) { return left(*a) != left(*b) ? left(*a) < left(*b) : goes_before(*a, *b); });
  // Half of the budget, or more of it that the others cannot use, goes to the first.
  int64_t budget = options_.prefill_tokens;
  grants_.assign(prefills_.size(), 0);
  grants_[0] = chunk_rows(*prefills_[0], (budget + 1) / 2);
  budget -= grants_[0];
  for (size_t i = 1; i < prefills_.size() && budget > 0; ++i) {
    grants_[i] = chunk_rows(*prefills_[i], budget);
    budget -= grants_[i];
  }
  grants_[0] = chunk_rows(*prefills_[0], grants_[0] + budget);
  for (size_t i = 0; i < prefills_.size(); ++i)
    if (grants_[i] > 0) plan_chunk(*prefills_[i], grants_[i], cycle);
}

// How many of the next `most` rows make a chunk. It ends at a page edge wherever it can, so that a prompt is cut at the same places
// whatever else runs, and where a state is to be left behind.
int64_t Scheduler::chunk_rows(const Sequence& s, int64_t most) const {
  const auto target = static_cast<int64_t>(s.tokens.size());
  int64_t end = std::min(target, s.computed + most);
  if (end < target) {
    const int64_t edge = end / kPageUnits * kPageUnits;
    if (edge > s.computed)
      end = edge;
    else if (options_.prefill_tokens >= 2 * kPageUnits)
      return 0;  // the first in order always reaches an edge, and this one will
  }
  // A state is left behind where another request's path branched off, and behind the prompt's last full page.
  for (const int64_t edge : {int64_t{s.branch_pages} * kPageUnits, (target - 1) / kPageUnits * kPageUnits})
    if (s.computed < edge && worth_snapshot(s, edge)) end = std::min(end, edge);
  return end - s.computed;
}

void Scheduler::plan_chunk(Sequence& s, int64_t rows, Cycle& cycle) {
  const int64_t end = s.computed + rows;
  BATON_CHECK(s.tree_pages * kPageUnits <= s.computed);  // a page in the tree is never written
  const Rows chunk{s.slot, static_cast<int32_t>(s.computed), static_cast<int32_t>(end - s.computed), static_cast<int32_t>(cycle.ids.size()),
                   end < std::ssize(s.tokens) ? s.tokens[static_cast<size_t>(end)] : kDrawnToken};
  cycle.ids.insert(cycle.ids.end(), s.tokens.begin() + s.computed, s.tokens.begin() + end);
  cycle.rows.push_back(chunk);
  plan_score(s, chunk, cycle);
  metrics_.prefill_tokens += chunk.count;
  s.computed = end;
  planned(planned_).ends.push_back({&s, end});
  touch(s);
  take_snapshot(s, cycle);
  if (end < static_cast<int64_t>(s.tokens.size())) return;
  if (s.request->spec.prompt_only) {
    s.state = State::kComputed;
    return;
  }
  const auto index = static_cast<int32_t>(cycle.rows.size()) - 1;
  plan_draw(s, index, false, 0, cycle);
  s.state = State::kDecode;
  fork(s, index, cycle);
}

void Scheduler::plan_score(Sequence& s, const Rows& chunk, Cycle& cycle) {
  const int64_t first = std::max<int64_t>(chunk.position, s.scored);
  const int64_t end = std::min<int64_t>(chunk.position + chunk.count, s.rows_to_score());
  if (first >= end) return;
  const auto skipped = static_cast<int32_t>(first - chunk.position);
  cycle.scores.push_back({static_cast<int32_t>(cycle.rows.size()) - 1, skipped, static_cast<int32_t>(end - first),
                          chunk.ids_begin + skipped + 1, s.request->spec.sampling.prompt_logprobs});
  cycle.ids.push_back(s.tokens[static_cast<size_t>(end)]);  // behind the chunk's own; not needed where its last row is not scored
  planned(planned_).scores.push_back(&s);
  s.scored = end;
}

bool Scheduler::worth_snapshot(const Sequence& s, int64_t edge) const {
  return s.request->spec.cache_prompt && memory_.snapshots.pool().capacity() > 0 &&
         edge >= s.snapshot_pages * kPageUnits + options_.snapshot_tokens;
}

// At the prompt's last full page, at branches, and at chunk ends that are at least twice as far as the one before.
void Scheduler::take_snapshot(Sequence& s, Cycle& cycle) {
  if (s.computed % kPageUnits != 0 || !worth_snapshot(s, s.computed)) return;
  const auto pages = static_cast<int32_t>(s.computed / kPageUnits);
  const auto last = static_cast<int32_t>((static_cast<int64_t>(s.tokens.size()) - 1) / kPageUnits);
  if (pages > last) return;
  if (pages != last && pages != s.branch_pages && pages < 2 * s.snapshot_pages) return;
  if (shoot(s, pages, cycle)) s.snapshot_pages = pages;
}

// The last page edge of what is generated has a state, too: there the next turn of a conversation begins, or an agent's next step. Only
// the last one is worth its memory, so it moves along, one for each sequence and in half of the pool at most: the other half is for what
// prompts leave behind, which many share.
void Scheduler::move_snapshot(Sequence& s, Cycle& cycle) {
  if (s.computed % kPageUnits != 0 || !may_move(s, s.computed)) return;
  const auto pages = static_cast<int32_t>(s.computed / kPageUnits);
  if (s.moving_pages == 0) ++moving_;
  drop_moving(s);
  s.moving_pages = pages;
  s.moving_snapshot = shoot(s, pages, cycle) ? planned(planned_).shots.back().snapshot : cache::kNoSnapshot;
}

bool Scheduler::may_move(const Sequence& s, int64_t edge) const {
  if (!options_.cache_generated) return false;
  return s.moving_pages > 0 || (worth_snapshot(s, edge) && moving_ < memory_.snapshots.pool().capacity() / 2);
}

void Scheduler::drop_moving(Sequence& s) {
  if (s.moving_pages == 0 || s.moving_snapshot == cache::kNoSnapshot) return;
  // Its place is known as long as it is there; another sequence may have got it since.
  const cache::Node node = s.moving_pages <= s.tree_pages ? s.pages[static_cast<size_t>(s.moving_pages) - 1] : cache::kRoot;
  if (node != cache::kRoot && memory_.snapshots.of(node) == s.moving_snapshot) memory_.snapshots.drop(node);
}

// With drafts nobody knows where a cycle ends. One that may reach the next page edge does not go beyond it, and leaves its state behind if
// it ends there.
void Scheduler::wait_for_edge(Sequence& s, Rows& rows, Cycle& cycle) {
  const int64_t edge = (s.computed / kPageUnits + 1) * kPageUnits;
  if (s.computed + s.drafts + rows.count < edge || !may_move(s, edge)) return;
  const int32_t snapshot = memory_.snapshots.take();
  if (snapshot == cache::kNoSnapshot) {
    ++metrics_.snapshots_skipped;
    return;
  }
  rows.edge = static_cast<int32_t>(edge);
  cycle.after.push_back({MoveKind::kSnapshot, s.slot, snapshot, rows.edge});
  planned(planned_).shots.push_back({&s, static_cast<int32_t>(edge / kPageUnits), snapshot, true});
}

bool Scheduler::shoot(Sequence& s, int32_t pages, Cycle& cycle) {
  const int32_t snapshot = memory_.snapshots.take();
  if (snapshot == cache::kNoSnapshot) {
    ++metrics_.snapshots_skipped;
    return false;
  }
  cycle.after.push_back({MoveKind::kSnapshot, s.slot, snapshot});
  planned(planned_).shots.push_back({&s, pages, snapshot, false});
  ++metrics_.snapshots_taken;
  return true;
}

// The prompt of a request with several choices is computed: each of the others gets a copy of the state and of the open page, and draws
// its first token from the same row. A full page is open, too, as long as what it holds depends on that token.
void Scheduler::fork(Sequence& leader, int32_t rows, Cycle& cycle) {
  for (const auto& choice : leader.request->choices) {
    Sequence* s = choice.get();
    if (s == nullptr || s->state != State::kAwaitFork) continue;
    cycle.after.push_back({MoveKind::kForkSlot, leader.slot, s->slot});
    const auto full = static_cast<int32_t>(shared_prompt_pages(*leader.request));
    if (full * kPageUnits < leader.computed)
      cycle.after.push_back({MoveKind::kCopyPage, leader.pages[static_cast<size_t>(full)], s->pages.front()});
    if (options_.look_ahead > 0) {  // the last row of the prompt is completed for each of them, in this cycle
      for (int32_t i = 0; i < full; ++i) cycle.table_edits.push_back({s->slot, i, leader.pages[static_cast<size_t>(i)]});
      for (size_t i = 0; i < s->pages.size(); ++i) cycle.table_edits.push_back({s->slot, full + static_cast<int32_t>(i), s->pages[i]});
    }
    plan_draw(*s, rows, false, 0, cycle);
    planned(planned_).forks.push_back(s);
    touch(*s);
    ++metrics_.forks;
  }
}

}  // namespace baton::sched
