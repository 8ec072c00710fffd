// A device made of token lists, for tests: it does what a cycle says with slots, pages and snapshots whose "bytes" are the tokens that they
// stand for, and checks at every row that what the row would read is what its sequence has been given. A token drawn is a hash of all the
// tokens before it, so that any mistake in sharing, copying or restoring shows in what comes out.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
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

  // What pages hold depends on the token behind, too: checks that nobody reads what belongs to another one.
  void look_ahead() { look_ahead_ = true; }
  // Drafts are right as often as a random number says; without, none are.
  void draft(uint64_t seed) { random_.seed(seed); }

  struct Outcome {
    std::vector<int32_t> tokens, ends, drafted;
    operator Drawn() const { return {tokens, ends, drafted}; }
  };

  // What becomes of token `index` of the outcome, given the one that the device would have drawn; for what holds draws to a form.
  using Choose = std::function<int32_t(int32_t index, const Draw& draw, int32_t token)>;

  Outcome run(const Cycle& c, const Choose& choose = {}) {
    for (const Bind& b : c.binds) {
      at(slots_, b.slot).choice = b.choice;
      at(slots_, b.slot).rows_limit = static_cast<size_t>(b.rows_limit);
    }
    for (const TableEdit& e : c.table_edits) {
      auto& table = at(slots_, e.slot).table;
      if (table.size() <= static_cast<size_t>(e.index)) table.resize(static_cast<size_t>(e.index) + 1, -1);
      table[static_cast<size_t>(e.index)] = e.page;
    }
    for (const Move& m : c.before) move(m);
    for (const Rows& r : c.rows) row(r, c);
    for (const Score& s : c.scores) score(s, c);
    Outcome out;
    for (const Draw& d : c.draws) {
      if (d.rows == kSlotRow)
        draw_from_slot(d, out);
      else
        draw(d, c.rows[static_cast<size_t>(d.rows)], out, choose);
    }
    for (const Move& m : c.after) move(m);
    // A fork has its pages now.
    for (const Draw& d : c.draws)
      if (look_ahead_ && d.rows != kSlotRow && d.slot != c.rows[static_cast<size_t>(d.rows)].slot)
        settle(at(slots_, d.slot), at(slots_, d.slot).last);
    return out;
  }

  // What a hand-over brings: a prompt's state, and its pages from `first` on.
  void receive(int32_t slot, std::span<const int32_t> pages, int32_t first, const std::vector<int32_t>& prompt) {
    at(slots_, slot).state = prompt;
    for (size_t i = static_cast<size_t>(first) * cache::kPageUnits; i < prompt.size(); ++i) {
      Page& page = at(pages_, pages[i / cache::kPageUnits]);
      page.resize(i % cache::kPageUnits);
      page.push_back({prompt[i], i + 1 < prompt.size() ? prompt[i + 1] : -1});
    }
  }

  // What a failed cycle may leave behind: nothing that is there is what anybody was given.
  void spoil() {
    for (Slot& s : slots_) spoil(s.state);
    for (auto* all : {&host_slots_, &snapshots_})
      for (auto& tokens : *all) spoil(tokens);
    for (auto* all : {&pages_, &host_pages_})
      for (auto& page : *all) spoil(page);
  }

 private:
  struct Slot {
    std::vector<int32_t> state;  // tokens that it has seen
    std::vector<int32_t> table;
    int32_t last = -1;
    int32_t choice = 0;
    size_t rows_limit = 0;
    bool ran = false;  // in this cycle
  };
  struct Row {
    int32_t token;
    int32_t next;  // the token behind
  };
  using Page = std::vector<Row>;

  static void spoil(std::vector<int32_t>& tokens) { std::fill(tokens.begin(), tokens.end(), -7); }
  static void spoil(Page& page) { std::fill(page.begin(), page.end(), Row{-7, -7}); }

  template <class T>
  static T& at(std::vector<T>& all, int32_t id) {
    return all.at(static_cast<size_t>(id));
  }

  void move(const Move& m) {
    switch (m.kind) {
      case MoveKind::kClearSlot: at(slots_, m.to).state.clear(); return;
      case MoveKind::kRestore: at(slots_, m.to).state = at(snapshots_, m.from); return;
      case MoveKind::kSnapshot:
        if (m.at < 0 || at(slots_, m.from).state.size() == static_cast<size_t>(m.at)) at(snapshots_, m.to) = at(slots_, m.from).state;
        return;
      case MoveKind::kResetRing: return;
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
    if (r.ids_begin == kDrawnToken) {
      ASSERT_GE(s.state.size(), static_cast<size_t>(r.position)) << "slot " << r.slot << " in cycle " << c.number;
      s.ran = s.state.size() < s.rows_limit;
      if (!s.ran) return;
      write(s, s.last);
    } else {
      ASSERT_EQ(s.state.size(), static_cast<size_t>(r.position)) << "slot " << r.slot << " in cycle " << c.number;
      for (int32_t i = 0; i < r.count; ++i) {
        const int32_t token = c.ids.at(static_cast<size_t>(r.ids_begin + i));
        if (i > 0) settle(s, token);
        write(s, token);
      }
      if (r.next != kDrawnToken) settle(s, r.next);
    }
    // The whole path is read.
    for (size_t p = 0; p < s.state.size(); ++p) {
      const Page& page = at(pages_, s.table.at(p / cache::kPageUnits));
      ASSERT_GT(page.size(), p % cache::kPageUnits);
      const Row& row = page[p % cache::kPageUnits];
      ASSERT_EQ(row.token, s.state[p]) << "slot " << r.slot << ", position " << p << ", cycle " << c.number;
      if (look_ahead_ && p + 1 < s.state.size()) {
        ASSERT_EQ(row.next, s.state[p + 1]) << "slot " << r.slot << ", position " << p << ", cycle " << c.number;
      }
    }
  }

  // A row behind the state.
  void write(Slot& s, int32_t token) {
    const size_t position = s.state.size();
    Page& page = at(pages_, s.table.at(position / cache::kPageUnits));
    page.resize(position % cache::kPageUnits);
    page.push_back({token, -1});
    s.state.push_back(token);
  }
  // The token behind the last row is known.
  void settle(Slot& s, int32_t next) {
    const size_t p = s.state.size() - 1;
    at(pages_, s.table.at(p / cache::kPageUnits)).at(p % cache::kPageUnits).next = next;
  }

  // One token, or a block of them: as many as drafts are right.
  void draw_from_slot(const Draw& d, Outcome& out) {
    Slot& s = at(slots_, d.slot);
    EXPECT_EQ(s.state.size(), static_cast<size_t>(d.position));
    s.last = next_token(s.state, s.choice, vocabulary_);
    settle(s, s.last);
    out.tokens.push_back(s.last);
    out.ends.push_back(static_cast<int32_t>(out.tokens.size()));
    out.drafted.push_back(0);
  }

  void draw(const Draw& d, const Rows& r, Outcome& out, const Choose& choose) {
    Slot& from = at(slots_, r.slot);
    Slot& to = at(slots_, d.slot);
    const bool decodes = r.ids_begin == kDrawnToken;
    int32_t drafts = 0, right = 0;
    if (decodes && from.ran && r.count > 1) {
      size_t end = from.rows_limit;
      if (from.state.size() <= static_cast<size_t>(r.edge)) end = std::min(end, static_cast<size_t>(r.edge));
      const auto room = static_cast<int32_t>(std::min<size_t>(end - from.state.size(), static_cast<size_t>(r.count) - 1));
      drafts = static_cast<int32_t>(random_() % 4 == 0 ? random_() % static_cast<uint64_t>(room + 1) : static_cast<uint64_t>(room));
      right = static_cast<int32_t>(random_() % static_cast<uint64_t>(drafts + 1));
    }
    for (int32_t i = 0; (!decodes || from.ran) && i <= right; ++i) {
      Draw here = d;
      if (decodes) {
        EXPECT_GE(from.state.size(), static_cast<size_t>(d.position));
        here.position = static_cast<int32_t>(from.state.size());
      } else {
        EXPECT_EQ(from.state.size(), static_cast<size_t>(d.position));
      }
      const int32_t token = next_token(from.state, to.choice, vocabulary_);
      out.tokens.push_back(choose ? choose(static_cast<int32_t>(out.tokens.size()), here, token) : token);
      to.last = std::max(out.tokens.back(), 0);
      if (d.slot == r.slot) settle(from, to.last);
      if (out.tokens.back() < 0) break;
      if (i < right) write(from, to.last);
    }
    // Rejected rows leave their bytes behind.
    const size_t kept = from.state.size();
    for (int32_t i = right; i < drafts && from.state.size() < from.rows_limit; ++i) write(from, -9);
    from.state.resize(kept);
    out.ends.push_back(static_cast<int32_t>(out.tokens.size()));
    out.drafted.push_back(drafts);
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
  std::mt19937_64 random_;
  bool look_ahead_ = false;
  std::vector<std::vector<int32_t>> snapshots_;
};

}  // namespace baton::sched
