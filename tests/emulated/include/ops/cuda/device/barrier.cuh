// Stands in for the device's header: see emulated/simt.h. An mbarrier keeps its counts in its own eight bytes, as the device's does.
#pragma once

#include "emulated/simt.h"

namespace baton::cuda {

inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(static_cast<const std::byte*>(p) - emulated::shared); }

struct Barrier {
  uint64_t word;  // bytes on the way (signed) << 32 | phase << 31 | arrivals of a phase << 15 | arrivals that are missing

  void init(uint32_t arrivals) { word = uint64_t{arrivals} << 15 | arrivals; }
  // `arrivals` fewer are missing, and `bytes` more are on the way; the phase ends when both are zero.
  void count(uint32_t arrivals, int32_t bytes) {
    if ((word & 0x7FFF) < arrivals) std::abort();  // one arrival too many
    const auto low = static_cast<uint32_t>(word) - arrivals;
    const auto pending = static_cast<uint32_t>(static_cast<int32_t>(word >> 32) + bytes);
    word = uint64_t{pending} << 32 | low;
    if (pending == 0 && (low & 0x7FFF) == 0) word = (low ^ 0x80000000U) | (low >> 15 & 0xFFFF);
    ++emulated::progress;
  }
  void arrive() { count(1, 0); }
  void expect(uint32_t bytes) { count(1, static_cast<int32_t>(bytes)); }
  void complete(uint32_t bytes) { count(0, -static_cast<int32_t>(bytes)); }
  bool test(uint32_t parity) const { return (word >> 31 & 1) != parity; }
  void wait(uint32_t parity) const {
    while (!test(parity)) emulated::yield();
  }
};

struct RingCursor {
  uint32_t index = 0;
  uint32_t parity = 0;
  void advance(uint32_t stages) {
    if (++index == stages) {
      index = 0;
      parity ^= 1;
    }
  }
};

inline void fence_barrier_init() {}
inline void fence_async_shared() {}
inline void named_barrier(uint32_t id, uint32_t threads) {
  emulated::block->named.try_emplace(id, threads).first->second.arrive_and_wait();
}

}  // namespace baton::cuda
