// A device made of token lists, for tests: it does what a cycle says with slots, pages and snapshots whose "bytes" are the tokens that they
// stand for, and checks at every row that what the row would read is what its sequence has been given. A token drawn is a hash of all the
// tokens before it, so that any mistake in sharing, copying or restoring shows in what comes out.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "cache/prefix_tree.h"
#include "sched/scheduler.h"

namespace baton::sched {

inline uint64_t mix(uint64_t h, uint64_t x) { return (h ^ (x + 0x9E3779B97F4A7C15U + (h << 6U) + (h >> 2U))) * 0xBF58476D1CE4E5B9U; }

// What follows `tokens` for a choice.
inline int32_t next_token(const std::vector<int32_t>& tokens, int32_t choice, int64_t vocabulary) {
  uint64_t h = static_cast<uint64_t>(choice) + 1;
  for (const int32_t t : tokens) h = mix(h, static_cast<uint64_t>(t));
  return static_cast<int32_t>((h >> 17U) % static_cast<uint64_t>(vocabulary));
}

class FakeDevice {
 public:
  FakeDevice(const MemorySizes& sizes, int64_t vocabulary)
      : vocabulary_(vocabulary), slots_(static_cast<size_t>(sizes.slots)), host_slots_(static_cast<size_t>(sizes.host_slots)),
        pages_(static_cast<size_t>(sizes.pages)), host_pages_(static_cast<size_t>(sizes.host_pages)),
        snapshots_(static_cast<size_t>(sizes.snapshots)) {}

  // What becomes of draw `index`, given the token that the device would have drawn; for what holds draws to a form.
  using Choose = std::function<int32_t(int32_t index, const Draw& draw, int32_t token)>;

  std::vector<int32_t> run(const Cycle& c, const Choose& choose = {}) {
    for (const Bind& b : c.binds) at(slots_, b.slot).choice = b.choice;
    for (const TableEdit& e : c.table_edits) {
      auto& table = at(slots_, e.slot).table;
      if (table.size() <= static_cast<size_t>(e.index)) table.resize(static_cast<size_t>(e.index) + 1, -1);
      table[static_cast<size_t>(e.index)] = e.page;
    }
    for (const Move& m : c.before) move(m);
    for (const Rows& r : c.rows) row(r, c);
    for (const Score& s : c.scores) score(s, c);
    std::vector<int32_t> drawn;
    for (const Draw& d : c.draws) {
      const Slot& from = at(slots_, c.rows[static_cast<size_t>(d.rows)].slot);
      EXPECT_EQ(static_cast<size_t>(d.position), from.state.size());
      const int32_t token = next_token(from.state, at(slots_, d.slot).choice, vocabulary_);
      drawn.push_back(choose ? choose(static_cast<int32_t>(drawn.size()), d, token) : token);
      at(slots_, d.slot).last = std::max(drawn.back(), 0);
    }
    for (const Move& m : c.after) move(m);
    return drawn;
  }

  // What a failed cycle may leave behind: nothing that is there is what anybody was given.
  void spoil() {
    for (Slot& s : slots_) spoil(s.state);
    for (auto* all : {&host_slots_, &pages_, &host_pages_, &snapshots_})
      for (auto& tokens : *all) spoil(tokens);
  }

 private:
  struct Slot {
    std::vector<int32_t> state;  // tokens that it has seen
    std::vector<int32_t> table;
    int32_t last = -1;
    int32_t choice = 0;
  };
  using Page = std::vector<int32_t>;

  static void spoil(std::vector<int32_t>& tokens) { std::fill(tokens.begin(), tokens.end(), -7); }

  template <class T>
  static T& at(std::vector<T>& all, int32_t id) {
    return all.at(static_cast<size_t>(id));
  }

  void move(const Move& m) {
    switch (m.kind) {
      case MoveKind::kClearSlot: at(slots_, m.to).state.clear(); return;
      case MoveKind::kRestore: at(slots_, m.to).state = at(snapshots_, m.from); return;
      case MoveKind::kSnapshot: at(snapshots_, m.to) = at(slots_, m.from).state; return;
      case MoveKind::kForkSlot: at(slots_, m.to).state = at(slots_, m.from).state; return;
      case MoveKind::kCopyPage: at(pages_, m.to) = at(pages_, m.from); return;
      case MoveKind::kSlotToHost: at(host_slots_, m.to) = at(slots_, m.from).state; return;
      case MoveKind::kPageToHost: at(host_pages_, m.to) = at(pages_, m.from); return;
      case MoveKind::kSlotFromHost: at(slots_, m.to).state = at(host_slots_, m.from); return;
      case MoveKind::kPageFromHost: at(pages_, m.to) = at(host_pages_, m.from); return;
    }
  }

  void row(const Rows& r, const Cycle& c) {
    Slot& s = at(slots_, r.slot);
    ASSERT_EQ(s.state.size(), static_cast<size_t>(r.position)) << "slot " << r.slot << " in cycle " << c.number;
    for (int32_t i = 0; i < r.count; ++i) {
      const int32_t token = r.ids_begin == kDrawnToken ? s.last : c.ids.at(static_cast<size_t>(r.ids_begin + i));
      const size_t position = s.state.size();
      Page& page = at(pages_, s.table.at(position / cache::kPageUnits));
      page.resize(position % cache::kPageUnits);
      page.push_back(token);
      s.state.push_back(token);
    }
    // The whole path is read.
    for (size_t p = 0; p < s.state.size(); ++p) {
      const Page& page = at(pages_, s.table.at(p / cache::kPageUnits));
      ASSERT_GT(page.size(), p % cache::kPageUnits);
      ASSERT_EQ(page[p % cache::kPageUnits], s.state[p]) << "slot " << r.slot << ", position " << p << ", cycle " << c.number;
    }
  }

  // What a score asks for are the tokens behind its rows; nothing is known of the one behind the last.
  static void score(const Score& s, const Cycle& c) {
    const Rows& r = c.rows.at(static_cast<size_t>(s.rows));
    ASSERT_GE(s.first, 0);
    ASSERT_GE(s.count, 1);
    ASSERT_LE(s.first + s.count, r.count);
    for (int32_t i = 0; i < s.count && s.first + i + 1 < r.count; ++i)
      ASSERT_EQ(c.ids.at(static_cast<size_t>(s.ids_begin + i)), c.ids.at(static_cast<size_t>(r.ids_begin + s.first + i + 1)));
  }

  int64_t vocabulary_;
  std::vector<Slot> slots_;
  std::vector<std::vector<int32_t>> host_slots_;
  std::vector<Page> pages_;
  std::vector<Page> host_pages_;
  std::vector<std::vector<int32_t>> snapshots_;
};

}  // namespace baton::sched
