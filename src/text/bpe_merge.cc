#include "text/bpe_merge.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <queue>
#include <unordered_map>

namespace baton::text {

MergeTable::MergeTable(size_t expected) {
  const size_t slots = std::bit_ceil(std::max<size_t>(16, expected * 2 + 1));
  slots_.resize(slots);
  mask_ = slots - 1;
  shift_ = 64 - std::countr_zero(slots);
}

void MergeTable::insert(int32_t left, int32_t right, Merge merge) {
  if ((size_ + 1) * 2 > slots_.size()) {
    MergeTable larger(slots_.size());
    for (const Slot& s : slots_)
      if (s.key != kFree) larger.insert(static_cast<int32_t>(s.key >> 32), static_cast<int32_t>(s.key & UINT32_MAX), s.merge);
    *this = std::move(larger);
  }
  const uint64_t key = key_of(left, right);
  size_t at = place(key);
  while (slots_[at].key != kFree && slots_[at].key != key) at = (at + 1) & mask_;
  size_ += slots_[at].key == kFree ? 1 : 0;
  slots_[at] = {key, merge};
}

void BpeMerger::merge(const MergeTable& table, std::vector<int32_t>& symbols) {
  if (symbols.size() <= kLongestScanned)
    merge_by_scanning(table, symbols);
  else
    merge_by_buckets(table, symbols);
}

void BpeMerger::merge_by_scanning(const MergeTable& table, std::vector<int32_t>& symbols) {
  size_t n = symbols.size();
  if (n < 2) return;
  // The last symbol has no pair; its rank ends every scan.
  pairs_.resize(n);
  for (size_t i = 0; i + 1 < n; ++i) pairs_[i] = table.find(symbols[i], symbols[i + 1]);
  while (n >= 2) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (pairs_[i].rank < pairs_[best].rank) best = i;
    if (pairs_[best].rank == MergeTable::kNoRank) break;
    symbols[best] = pairs_[best].id;
    for (size_t i = best + 1; i + 1 < n; ++i) {
      symbols[i] = symbols[i + 1];
      pairs_[i] = pairs_[i + 1];
    }
    --n;
    if (best + 1 < n) pairs_[best] = table.find(symbols[best], symbols[best + 1]);
    if (best > 0) pairs_[best - 1] = table.find(symbols[best - 1], symbols[best]);
  }
  symbols.resize(n);
}

namespace {

// A word as a linked list over its first symbols' positions, and for each rank the positions whose pair has it.
class BucketMerge {
 public:
  BucketMerge(const MergeTable& table, std::vector<int32_t>& symbols)
      : table_(table), ids_(symbols), links_(symbols.size()), size_(static_cast<uint32_t>(symbols.size())) {
    for (uint32_t i = 0; i < size_; ++i) links_[i] = {i == 0 ? kNone : i - 1, i + 1 < size_ ? i + 1 : kNone, MergeTable::kNoRank};
    for (uint32_t i = 0; i + 1 < size_; ++i) look(i);
  }

  void run() {
    while (!ranks_.empty()) {
      const uint32_t rank = ranks_.top();
      // A pass may make a pair of lower rank only where merges are not in the order of training; then that one goes first.
      Bucket& bucket = buckets_.find(rank)->second;
      bucket.sort();
      while (!bucket.empty() && ranks_.top() == rank) merge(bucket.pop(), rank, bucket.id);
      if (ranks_.top() != rank) continue;
      ranks_.pop();
      if (last_rank_ == rank) last_bucket_ = nullptr;
      buckets_.erase(rank);
    }
    size_t n = 0;
    for (uint32_t i = 0; i != kNone; i = links_[i].next) ids_[n++] = ids_[i];
    ids_.resize(n);
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Link {
    uint32_t previous, next;
    uint32_t rank;  // of the pair with the next symbol; kNoRank also for symbols that are gone
  };
  struct Bucket {
    int32_t id = 0;
    std::vector<uint32_t> at;
    size_t taken = 0;
    bool empty() const { return taken == at.size(); }
    uint32_t pop() { return at[taken++]; }
    // One pass appends in ascending order, so that there is rarely anything to do.
    void sort() {
      const auto begin = at.begin() + static_cast<std::ptrdiff_t>(taken);
      if (!std::is_sorted(begin, at.end())) std::sort(begin, at.end());
    }
  };

  // Notes the pair of symbol i and its right neighbour.
  void look(uint32_t i) {
    links_[i].rank = MergeTable::kNoRank;
    if (links_[i].next == kNone) return;
    const Merge m = table_.find(ids_[i], ids_[links_[i].next]);
    if (m.rank == MergeTable::kNoRank) return;
    links_[i].rank = m.rank;
    if (last_bucket_ == nullptr || m.rank != last_rank_) {
      const auto [at, added] = buckets_.try_emplace(m.rank);
      if (added) {
        at->second.id = m.id;
        ranks_.push(m.rank);
      }
      // References into an unordered_map stay valid while others come and go.
      last_bucket_ = &at->second;
      last_rank_ = m.rank;
    }
    last_bucket_->at.push_back(i);
  }

  void merge(uint32_t i, uint32_t rank, int32_t id) {
    if (links_[i].rank != rank) return;  // one of the two was merged elsewhere since
    const uint32_t gone = links_[i].next;
    ids_[i] = id;
    links_[gone].rank = MergeTable::kNoRank;
    links_[i].next = links_[gone].next;
    if (links_[i].next != kNone) links_[links_[i].next].previous = i;
    if (links_[i].previous != kNone) look(links_[i].previous);
    look(i);
  }

  const MergeTable& table_;
  std::vector<int32_t>& ids_;
  std::vector<Link> links_;
  uint32_t size_;
  std::unordered_map<uint32_t, Bucket> buckets_;
  std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ranks_;  // of the buckets, each once
  Bucket* last_bucket_ = nullptr;
  uint32_t last_rank_ = 0;
};

}  // namespace

void BpeMerger::merge_by_buckets(const MergeTable& table, std::vector<int32_t>& symbols) {
  if (symbols.size() >= 2) BucketMerge(table, symbols).run();
}

}  // namespace baton::text
