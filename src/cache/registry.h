// The registry: which byte ranges of a page and of a slot exist and how long they live, without what they mean.
//
// The model and a drafter register their ranges once, at start; snapshots, retraction and hand-over are lists of copies made from them.
//
// Threads: written at start, then read from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace baton::cache {

enum class Home : uint8_t { kPage, kSlot };

enum class Lifetime : uint8_t {
  kTokens,  // of a page: as long as its tokens
  kState,   // of a slot: what the tokens so far left behind; part of snapshots and hand-overs
  kTail,    // of a slot: what has not reached its page yet; nothing at a page edge, so part of hand-overs alone
  kCycle    // of a slot: the replay ring; means nothing once it is folded
};

struct ByteRange {
  Home home = Home::kPage;
  Lifetime lifetime = Lifetime::kTokens;
  int64_t offset = 0;
  int64_t bytes = 0;
};

class Registry {
 public:
  Registry(int64_t page_bytes, int64_t slot_bytes) : page_bytes_(page_bytes), slot_bytes_(slot_bytes) {}

  // Stops the process if the range leaves its object or overlaps another: layouts are computed, never input.
  void add(const ByteRange& range);

  int64_t page_bytes() const { return page_bytes_; }
  int64_t slot_bytes() const { return slot_bytes_; }
  std::span<const ByteRange> ranges() const { return ranges_; }

  // A snapshot holds the slot's ranges of kState one behind the other; ranges that touch are one copy.
  struct Copy {
    int64_t slot_offset;
    int64_t snapshot_offset;
    int64_t bytes;
  };
  std::span<const Copy> snapshot_copies() const { return snapshot_; }
  int64_t snapshot_bytes() const;  // a multiple of 256

 private:
  int64_t page_bytes_;
  int64_t slot_bytes_;
  std::vector<ByteRange> ranges_;  // by home and offset
  std::vector<Copy> snapshot_;
};

}  // namespace baton::cache
