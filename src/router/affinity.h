// Which instances have probably cached which beginnings of prompts: a table of fixed size that forgets what was used longest ago.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace baton::router {

constexpr int kMostInstances = 64;

class Affinity {
 public:
  // Remembers `entries` blocks, rounded up to a power of two; 24 bytes each.
  explicit Affinity(size_t entries = size_t{1} << 18);

  // An instance was sent a prompt with these blocks.
  void record(std::span<const uint64_t> blocks, int instance);
  // How many blocks from the beginning each instance has, into `matched`, which has kMostInstances places.
  void match(std::span<const uint64_t> blocks, std::span<int32_t> matched) const;
  // What it had is gone: its process is another one.
  void forget(int instance);

 private:
  struct Entry {
    uint64_t hash = 0;
    uint64_t instances = 0;  // a bit each; none: a free place
    uint64_t used = 0;       // number of the record() that used it last
  };
  static constexpr size_t kWays = 4;  // places in which a hash may stand
  size_t set_of(uint64_t hash) const { return (hash & (entries_.size() / kWays - 1)) * kWays; }
  const Entry* find(uint64_t hash) const;

  std::vector<Entry> entries_;
  uint64_t uses_ = 0;
};

}  // namespace baton::router
