// The pools and caches that the scheduler hands out, and the rule by which they come back: nothing is free before the last launched cycle
// that may touch it has completed.
//
// Threads: none of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/id_pool.h"
#include "cache/prefix_tree.h"
#include "cache/snapshot_cache.h"

namespace baton::sched {

struct MemorySizes {
  int32_t pages = 0;
  int32_t slots = 0;
  int32_t snapshots = 0;
  int32_t host_pages = 0;  // for retracted sequences
  int32_t host_slots = 0;
};

class Memory {
 public:
  explicit Memory(const MemorySizes& sizes);

  cache::IdPool pages;
  cache::IdPool slots;
  cache::IdPool host_pages;
  cache::IdPool host_slots;
  cache::PrefixTree tree;
  cache::SnapshotCache snapshots;

  // Held pages, at the expense of the least recently used cached ones if need be: all of `out`, or none and nothing is evicted.
  bool take_pages(std::span<int32_t> out);

  enum class Kind : uint8_t { kPage, kSlot, kHostPage, kHostSlot, kLease, kSnapshotLease };
  // Gives back `id` (of a held object; of a leased node or snapshot) once `cycle` has completed; at once if it has.
  void retire(Kind kind, int32_t id, int64_t cycle);
  // All cycles up to `cycle` have completed.
  void complete(int64_t cycle);

  int64_t completed() const { return completed_; }
  int32_t retiring_pages() const { return retiring_pages_; }
  int32_t retiring_leases() const { return retiring_leases_; }
  int64_t evicted_pages() const { return evicted_; }
  // Grows whenever something came back, whoever held it: a request that did not fit is worth another try.
  int64_t returns() const { return returns_ + pages.freed() + slots.freed() + tree.unlocked(); }
  // Frees every cached page and snapshot without a lease; returns how many pages.
  int32_t flush();

  void check_invariants() const;

 private:
  struct Retired {
    Kind kind;
    int32_t id;
    int64_t cycle;
  };
  void give_back(const Retired& r);

  std::vector<Retired> retired_;
  int64_t completed_ = 0;
  int32_t retiring_pages_ = 0;
  int32_t retiring_leases_ = 0;
  int64_t evicted_ = 0;
  int64_t returns_ = 0;
};

}  // namespace baton::sched
