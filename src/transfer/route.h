// What one process sends another of each object, worked out once from the layouts of both, and the bytes that a part is made of.
//
// Threads: values.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "transfer/slices.h"
#include "transfer/transport.h"

namespace baton::transfer {

struct Route {
  std::vector<Slice> page;
  std::vector<std::pair<Slice, uint32_t>> slot;  // with the part that it belongs to
};
// In the order of the receiver's runs.
Route route(const Memory& from, const Memory& to);

// Whether these two may hand over to each other at all.
Status check_match(uint32_t instance, const Memory& memory, uint32_t other_instance, const Memory& other);

inline bool has(const Region& region, int32_t id) { return id >= 0 && id < region.objects; }
// An id that is not there is a defect.
std::byte* object(const Region& region, int32_t id);

// Whether the receiver has the pages and the slot that a part goes to: kInvalid.
Status check_receiver(const Part& part, int32_t pages, int32_t slots);

// A piece of a process's own memory.
struct Extent {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
};
// What a part sends, as it lies with the sender; and what it has become with the receiver. In the same order: pages as listed, then the
// slot, each in the order of the receiver's runs. So both have the same checksum if they are the same.
std::vector<Extent> sent_extents(const Memory& from, const Route& route, const Part& part);
std::vector<Extent> held_extents(const Memory& memory, std::span<const int32_t> pages, int32_t slot, uint32_t slot_parts);

// Of extents in main memory.
uint64_t checksum_of(std::span<const Extent> extents);

}  // namespace baton::transfer
