// The ids of short words seen before: most words of a text are repetitions. Belongs to one thread at a time; of fixed size.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace baton::text {

class WordCache {
 public:
  static constexpr size_t kLongestWord = 15;  // bytes
  static constexpr size_t kMostIds = 4;

  struct Key {
    uint64_t low = 0, high = 0;  // the bytes of the word, zeros, and its length in the last byte; never all zero
  };
  // A word of 1 to kLongestWord bytes; `readable` bytes from `word` on may be read.
  static Key key_of(const char* word, size_t bytes, size_t readable) {
    uint64_t w[2] = {0, 0};
    if (readable >= sizeof w) [[likely]] {
      std::memcpy(w, word, sizeof w);
      constexpr uint64_t kAll = ~uint64_t{0};
      w[0] = bytes >= 8 ? w[0] : w[0] & (kAll >> (64 - 8 * bytes));
      w[1] = bytes <= 8 ? 0 : w[1] & (kAll >> (128 - 8 * bytes));
    } else {
      std::memcpy(w, word, bytes);
    }
    return {w[0], w[1] | uint64_t{bytes} << 56};
  }

  struct Ids {
    int32_t id[kMostIds];  // unused ones are negative, and at the end
    size_t count() const { return size_t{1} + (id[1] >= 0 ? 1 : 0) + (id[2] >= 0 ? 1 : 0) + (id[3] >= 0 ? 1 : 0); }
  };

  WordCache() : entries_(kEntries) {}

  const Ids* find(Key key) const {
    const size_t at = place(key);
    // Two places for each word, in one line of the processor's cache.
    for (const size_t i : {at, at ^ 1})
      if (entries_[i].key.low == key.low && entries_[i].key.high == key.high) return &entries_[i].ids;
    return nullptr;
  }

  // 1 to kMostIds ids.
  void insert(Key key, const int32_t* ids, size_t count) {
    const size_t at = place(key);
    entries_[at ^ 1] = entries_[at];  // the newer of the two stays
    Entry& e = entries_[at];
    e.key = key;
    for (size_t i = 0; i < kMostIds; ++i) e.ids.id[i] = i < count ? ids[i] : -1;
  }

 private:
  static constexpr size_t kEntries = size_t{1} << 15;  // 1 MiB: more would not stay in the second-level cache
  struct alignas(32) Entry {
    Key key;
    Ids ids = {{-1, -1, -1, -1}};
  };
  static size_t place(Key key) {
    // A wide product: every bit of the word reaches the index.
    const auto product = static_cast<unsigned __int128>(key.low ^ 0x9E3779B97F4A7C15) * (key.high ^ 0xD1B54A32D192ED03);
    return static_cast<size_t>(static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64)) & (kEntries - 1);
  }
  std::vector<Entry> entries_;
};

}  // namespace baton::text
