// Byte-pair merges: the ids of one word. Near-linear in the word for any input: short words by scanning, long ones by rank buckets.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace baton::text {

struct Merge {
  uint32_t rank = 0;  // lower goes first
  int32_t id = 0;     // what the pair becomes
};

// (left id, right id) -> merge. Open addressing, at most half full.
class MergeTable {
 public:
  explicit MergeTable(size_t expected = 0);
  void insert(int32_t left, int32_t right, Merge merge);  // replaces
  size_t size() const { return size_; }

  static constexpr uint32_t kNoRank = UINT32_MAX;
  // rank is kNoRank where the pair does not merge.
  Merge find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t at = place(key);; at = (at + 1) & mask_) {
      const Slot& s = slots_[at];
      if (s.key == key) return s.merge;
      if (s.key == kFree) return {kNoRank, -1};
    }
  }

 private:
  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };
  static constexpr uint64_t kFree = UINT64_MAX;  // no pair of ids: ids are not negative
  static uint64_t key_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t place(uint64_t key) const { return static_cast<size_t>(key * 0x9E3779B97F4A7C15 >> shift_); }

  std::vector<Slot> slots_;
  size_t mask_ = 0;
  int shift_ = 0;
  size_t size_ = 0;
};

// Working memory of one thread. Small; what a long word needs is given back at once.
class BpeMerger {
 public:
  // Replaces `symbols` by what remains when the merge of lowest rank, of equal ones the leftmost, is applied until none applies.
  void merge(const MergeTable& table, std::vector<int32_t>& symbols);

  // The two ways behind merge(). By scanning: quadratic, fast for short words. By buckets: near-linear.
  void merge_by_scanning(const MergeTable& table, std::vector<int32_t>& symbols);
  void merge_by_buckets(const MergeTable& table, std::vector<int32_t>& symbols);

 private:
  static constexpr size_t kLongestScanned = 96;
  std::vector<Merge> pairs_;  // the merge of symbol i with its right neighbour
};

}  // namespace baton::text
