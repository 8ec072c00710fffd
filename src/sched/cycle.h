// A cycle: what one launch of the device does, planned by the scheduler, run by an executor. The contract between the two.
//
// Cycles run one after the other in the order of their numbers, each: binds, table edits, moves before, rows, scores, draws, moves after.
// While a cycle runs the next one may be planned and launched; nothing in it depends on what the host has not seen: a row may take the
// token that its slot drew last, wherever that token is by then.
//
// A cycle may draft: behind the token that a slot drew last it runs rows of tokens that a drafter guesses, and draws from each of these
// rows. How many count is known to the device alone until the cycle is done (speculate/acceptance.h), so what a later cycle says of the
// slot's place is the least that it can be.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sched/request.h"

namespace baton::sched {

// Cycles that may be launched and not yet completed.
inline constexpr int32_t kCyclesInFlight = 2;

enum class MoveKind : uint8_t {
  kClearSlot,     // `to`: a slot as it is before the first token
  kRestore,       // snapshot `from` becomes the state of slot `to`, whose other ranges are as after kClearSlot
  kSnapshot,      // the true state of slot `from` into snapshot `to`
  kResetRing,     // slot `to` has no recorded rows that await their fold, whatever whoever had it before left
  kForkSlot,      // the true state and everything else of slot `from` into slot `to`
  kCopyPage,      // page to page
  kSlotToHost,    // the true state and everything else of slot `from` into host slot `to`
  kPageToHost,    // page `from` into host page `to`
  kSlotFromHost,  // and back
  kPageFromHost
};

// "True state": recorded rows that await their fold are folded first (materialise).
struct Move {
  MoveKind kind;
  int32_t from;
  int32_t to;
  int32_t at = -1;  // of kSnapshot: only if the slot has exactly so many rows then; -1: whatever it has
};

// Entry `index` of a slot's page table. Tables stay as they are between edits.
struct TableEdit {
  int32_t slot;
  int32_t index;
  int32_t page;
};

// From now on the slot draws for this choice. `history`: tokens before the next draw, of which the first `prompt` are the prompt;
// given only where sampling penalises. Rows end before `rows_limit`.
struct Bind {
  int32_t slot;
  int32_t choice;
  RequestId request;
  int32_t history_begin;  // into Cycle::history
  int32_t history_count;
  int32_t prompt;
  int32_t rows_limit;
};

// Consecutive rows of one sequence.
struct Rows {
  int32_t slot;
  int32_t position;
  int32_t count;
  int32_t
      ids_begin;     // into Cycle::ids; kDrawnToken: a row of the token that the slot drew last, and up to count - 1 drafted ones behind it
  int32_t next = 0;  // the token behind the last row; kDrawnToken: what is drawn from it, here or, where nothing is, elsewhere
  int32_t edge = 0;  // rows of drawn tokens that begin before this position end there at the latest; 0: anywhere
};
inline constexpr int32_t kDrawnToken = -1;
inline constexpr int32_t kSlotRow = -1;

struct Draw {
  int32_t rows;      // index into Cycle::rows: the draw is from its last row; where there are drafts, from each, as far as they are right
                     // kSlotRow: no rows, the draw is from the last hidden row that the slot holds
  int32_t slot;      // whose sampling applies, and whose last token the drawn one becomes
  int32_t position;  // of the token; where rows are of drawn tokens, at least
};

// Rows of a prompt for which it is asked how likely the token behind each was: `count` of them from row `first` of `rows` on.
struct Score {
  int32_t rows;       // index into Cycle::rows
  int32_t first;      // counted from the first of these
  int32_t count;      // at least 1
  int32_t ids_begin;  // into Cycle::ids: the tokens behind the rows
  int32_t logprobs;   // k: of these tokens, and of the k most likely ones
};

// What a draw may give instead of a token, beside the negative values of ops/head.h.
inline constexpr int32_t kConstraintFailed = -3;  // what holds the choice to a form has failed, and nothing may be drawn without it
inline constexpr int32_t kConstraintOver = -4;    // the form is complete, and the choice ends

// What came of a cycle's draws.
struct Drawn {
  std::span<const int32_t> tokens;   // draw by draw: tokens, and behind them perhaps a negative value, of ops/head.h or one of these
  std::span<const int32_t> ends;     // by draw: behind the last of its tokens; empty: each has one
  std::span<const int32_t> drafted;  // by draw: how many drafts were verified; empty: none
};

struct Cycle {
  int64_t number = 0;
  std::vector<Bind> binds;
  std::vector<int32_t> history;
  std::vector<TableEdit> table_edits;
  std::vector<Move> before;
  std::vector<Rows> rows;
  std::vector<int32_t> ids;
  std::vector<Draw> draws;
  std::vector<Score> scores;
  std::vector<Move> after;

  int64_t row_count() const {
    int64_t n = 0;
    for (const Rows& r : rows) n += r.count;
    return n;
  }
  bool empty() const { return rows.empty() && before.empty() && after.empty() && table_edits.empty() && binds.empty() && draws.empty(); }
  void clear() {
    binds.clear();
    history.clear();
    table_edits.clear();
    before.clear();
    rows.clear();
    ids.clear();
    draws.clear();
    scores.clear();
    after.clear();
  }
};

}  // namespace baton::sched
