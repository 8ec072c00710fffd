// A device made of hashes: what a page, a slot or a snapshot holds is stood for by a hash of the tokens that it was computed from, so that
// every mistake in sharing, sending, restoring or reusing memory shows at the next row that reads it.
//
// A row depends on all tokens before it, and so do its page and the state behind it. A token that is drawn is a hash of what came before.
// Decoding rows are recorded in the slot and folded into its state by the next row, as with a replay ring.
//
// Threads: one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "sched/cycle.h"
#include "sched/memory.h"

namespace baton::sim {

inline constexpr int32_t kVocabulary = 50'000;
inline constexpr int64_t kPoolTokens = 4;  // of an indexer's pool: a sequence that ends inside one has a tail

using Prefix = uint64_t;  // hash of a run of tokens; 0: none
Prefix behind(Prefix prefix, int32_t token);
// What follows `prefix`.
int32_t next_token(Prefix prefix);

struct PageContent {
  Prefix before = 0;
  Prefix after = 0;
  int32_t tokens = 0;
};
struct SlotContent {
  Prefix state = 0;
  int64_t length = 0;
  Prefix tail = 0;    // of the open pool; 0 at its edge
  Prefix hidden = 0;  // of the last row
};

class TokenDevice {
 public:
  explicit TokenDevice(const sched::MemorySizes& sizes);

  std::vector<int32_t> run(const sched::Cycle& cycle);

  const PageContent& page(int32_t page) const { return pages_.at(static_cast<size_t>(page)); }
  void write_page(int32_t page, const PageContent& content) { pages_.at(static_cast<size_t>(page)) = content; }
  SlotContent true_slot(int32_t slot) const;  // what is recorded is folded: what a sender sends
  const SlotContent& slot(int32_t slot) const { return slots_.at(static_cast<size_t>(slot)).content; }  // as it lies there
  // `parts`: bits of pd::slot_part.
  void write_slot(int32_t slot, const SlotContent& content, uint32_t parts);

  // What a failed cycle may leave behind: nothing that is there is what anybody was given.
  void spoil();

  // The first thing that was not what its sequence had been given; empty: nothing yet.
  const std::string& problem() const { return problem_; }

 private:
  struct Slot {
    SlotContent content;
    bool recorded = false;  // `record` awaits its fold
    int32_t record = 0;
    int32_t last = -1;
    std::vector<int32_t> table;
    Prefix true_state() const { return recorded ? behind(content.state, record) : content.state; }
    void fold() {
      content.state = true_state();
      recorded = false;
    }
  };
  void move(const sched::Move& m);
  void run_rows(const sched::Rows& r, const sched::Cycle& c);
  void check_path(const Slot& s, const sched::Rows& r);
  void find(std::string problem);

  std::vector<Slot> slots_;
  std::vector<Slot> host_slots_;
  std::vector<PageContent> pages_;
  std::vector<PageContent> host_pages_;
  std::vector<SlotContent> snapshots_;
  std::string problem_;
};

uint64_t checksum(const PageContent& content, uint64_t before);
uint64_t checksum(const SlotContent& content);

}  // namespace baton::sim
