#include "sim/token_device.h"

#include <fmt/format.h>

#include <algorithm>

#include "pd/prefill_end.h"
#include "sim/random.h"

namespace baton::sim {

using cache::kPageUnits;
using sched::MoveKind;

Prefix behind(Prefix prefix, int32_t token) {
  return Random::scramble(prefix * 0x9E3779B97F4A7C15U + static_cast<uint64_t>(token) + 1) | 1U;
}

int32_t next_token(Prefix prefix) { return static_cast<int32_t>((prefix >> 20U) % kVocabulary); }

TokenDevice::TokenDevice(const sched::MemorySizes& sizes)
    : slots_(static_cast<size_t>(sizes.slots)), host_slots_(static_cast<size_t>(sizes.host_slots)),
      pages_(static_cast<size_t>(sizes.pages)), host_pages_(static_cast<size_t>(sizes.host_pages)),
      snapshots_(static_cast<size_t>(sizes.snapshots)) {}

void TokenDevice::find(std::string problem) {
  if (problem_.empty()) problem_ = std::move(problem);
}

std::vector<int32_t> TokenDevice::run(const sched::Cycle& c) {
  for (const sched::TableEdit& e : c.table_edits) {
    auto& table = slots_.at(static_cast<size_t>(e.slot)).table;
    if (std::ssize(table) <= e.index) table.resize(static_cast<size_t>(e.index) + 1, -1);
    table[static_cast<size_t>(e.index)] = e.page;
  }
  for (const sched::Move& m : c.before) move(m);
  for (const sched::Rows& r : c.rows) run_rows(r, c);
  std::vector<int32_t> drawn;
  for (const sched::Draw& d : c.draws) {
    const int32_t from = d.rows == sched::kSlotRow ? d.slot : c.rows[static_cast<size_t>(d.rows)].slot;
    const Slot& s = slots_.at(static_cast<size_t>(from));
    if (s.content.length != d.position || s.content.hidden != s.true_state())
      find(fmt::format("the draw for position {} is from slot {}, which has seen {} tokens and whose hidden row {} its state", d.position,
                       from, s.content.length, s.content.hidden == s.true_state() ? "is that of" : "does not belong to"));
    drawn.push_back(next_token(s.content.hidden));
    slots_.at(static_cast<size_t>(d.slot)).last = drawn.back();
  }
  for (const sched::Move& m : c.after) move(m);
  return drawn;
}

void TokenDevice::move(const sched::Move& m) {
  const auto from = static_cast<size_t>(m.from);
  const auto to = static_cast<size_t>(m.to);
  switch (m.kind) {
    case MoveKind::kClearSlot:
      slots_.at(to).content = {};
      slots_.at(to).recorded = false;
      return;
    case MoveKind::kRestore:
      slots_.at(to).content = snapshots_.at(from);
      slots_.at(to).recorded = false;
      return;
    case MoveKind::kSnapshot:
      slots_.at(from).fold();
      snapshots_.at(to) = slots_.at(from).content;
      snapshots_.at(to).tail = 0;  // tails are no part of it
      return;
    case MoveKind::kResetRing: slots_.at(to).recorded = false; return;
    case MoveKind::kForkSlot:
      slots_.at(from).fold();
      slots_.at(to).content = slots_.at(from).content;
      slots_.at(to).recorded = false;
      return;
    case MoveKind::kCopyPage: pages_.at(to) = pages_.at(from); return;
    case MoveKind::kSlotToHost:
      slots_.at(from).fold();
      host_slots_.at(to) = slots_.at(from);
      return;
    case MoveKind::kSlotFromHost:
      slots_.at(to).content = host_slots_.at(from).content;
      slots_.at(to).recorded = false;
      slots_.at(to).last = host_slots_.at(from).last;
      return;
    case MoveKind::kPageToHost: host_pages_.at(to) = pages_.at(from); return;
    case MoveKind::kPageFromHost: pages_.at(to) = host_pages_.at(from); return;
  }
}

// Everything before the rows is read: the path of pages, the state, the tail.
void TokenDevice::check_path(const Slot& s, const sched::Rows& r) {
  const SlotContent& c = s.content;
  const Prefix state = s.true_state();
  if (c.length != r.position) return find(fmt::format("slot {} has seen {} tokens, and a row is at {}", r.slot, c.length, r.position));
  if (c.tail != (c.length % kPoolTokens == 0 ? 0 : state))
    return find(fmt::format("slot {}: the tail of its open pool is not what its {} tokens left", r.slot, c.length));
  Prefix before = 0;
  const auto pages = static_cast<size_t>((c.length + kPageUnits - 1) / kPageUnits);
  for (size_t i = 0; i < pages; ++i) {
    const int32_t id = i < s.table.size() ? s.table[i] : -1;
    const auto filled = std::min<int64_t>(kPageUnits, c.length - static_cast<int64_t>(i) * kPageUnits);
    if (id < 0 || pages_.at(static_cast<size_t>(id)).before != before || pages_[static_cast<size_t>(id)].tokens != filled)
      return find(fmt::format("slot {}: page {} of its sequence (page {} of the pool) holds something else", r.slot, i, id));
    before = pages_[static_cast<size_t>(id)].after;
  }
  if (before != state) find(fmt::format("slot {}: its pages and its state belong to different tokens at {}", r.slot, c.length));
}

void TokenDevice::run_rows(const sched::Rows& r, const sched::Cycle& c) {
  Slot& s = slots_.at(static_cast<size_t>(r.slot));
  check_path(s, r);
  if (!problem_.empty()) return;
  for (int32_t i = 0; i < r.count; ++i) {
    const bool decodes = r.ids_begin == sched::kDrawnToken;
    const int32_t token = decodes ? s.last : c.ids.at(static_cast<size_t>(r.ids_begin + i));
    s.fold();
    const Prefix after = behind(s.content.state, token);
    const auto index = static_cast<size_t>(s.content.length / kPageUnits);
    if (index >= s.table.size() || s.table[index] < 0) return find(fmt::format("slot {} has no page {}", r.slot, index));
    PageContent& page = pages_.at(static_cast<size_t>(s.table[index]));
    page.tokens = static_cast<int32_t>(s.content.length % kPageUnits) + 1;
    if (page.tokens == 1) page.before = s.content.state;
    page.after = after;
    if (decodes) {
      s.recorded = true;
      s.record = token;
    } else {
      s.content.state = after;
    }
    ++s.content.length;
    s.content.tail = s.content.length % kPoolTokens == 0 ? 0 : after;
    s.content.hidden = after;
  }
}

void TokenDevice::spoil() {
  constexpr Prefix kSpoilt = 0xBAD;
  for (auto* all : {&slots_, &host_slots_})
    for (Slot& s : *all) {
      s.content = {kSpoilt, s.content.length, kSpoilt, kSpoilt};
      s.recorded = true;
      s.record = -7;
    }
  for (auto* all : {&pages_, &host_pages_})
    for (PageContent& p : *all) p.before = p.after = kSpoilt;
  for (SlotContent& s : snapshots_) s.state = kSpoilt;
}

SlotContent TokenDevice::true_slot(int32_t slot) const {
  SlotContent c = slots_.at(static_cast<size_t>(slot)).content;
  c.state = slots_.at(static_cast<size_t>(slot)).true_state();
  return c;
}

void TokenDevice::write_slot(int32_t slot, const SlotContent& content, uint32_t parts) {
  SlotContent& to = slots_.at(static_cast<size_t>(slot)).content;
  if ((parts & pd::slot_part::kState) != 0) {
    to.state = content.state;
    to.length = content.length;
  }
  if ((parts & pd::slot_part::kTail) != 0) to.tail = content.tail;
  if ((parts & pd::slot_part::kHidden) != 0) to.hidden = content.hidden;
}

uint64_t checksum(const PageContent& p, uint64_t before) {
  return Random::scramble(before ^ Random::scramble(p.before ^ Random::scramble(p.after + static_cast<uint64_t>(p.tokens))));
}

uint64_t checksum(const SlotContent& s) {
  return Random::scramble(s.state ^ Random::scramble(s.tail ^ Random::scramble(s.hidden + static_cast<uint64_t>(s.length))));
}

}  // namespace baton::sim
