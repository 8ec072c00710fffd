#include "transfer/route.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <iterator>
#include <memory>

#include "base/check.h"

namespace baton::transfer {

const char* name_of(Failure failure) {
  constexpr const char* kNames[] = {"gone", "refused", "too_long"};
  static_assert(std::size(kNames) == static_cast<size_t>(Failure::kCount));
  return kNames[static_cast<size_t>(failure)];
}

Route route(const Memory& from, const Memory& to) {
  Route r{.page = slices(from.page_runs, to.page_runs), .slot = {}};
  for (const SlotRun& wanted : to.slot_runs)
    for (const SlotRun& own : from.slot_runs)
      for (const Slice& s : slices({&own.run, 1}, {&wanted.run, 1})) r.slot.emplace_back(s, wanted.part);
  return r;
}

Status check_match(uint32_t instance, const Memory& memory, uint32_t other_instance, const Memory& other) {
  if (memory.fingerprint != other.fingerprint)
    return Error{Error::Kind::kInvalid, fmt::format("instances {} and {} have different models or cache types; start them with the same",
                                                    instance, other_instance)};
  if (!memory.page_runs.empty() && !other.page_runs.empty() && slices(memory.page_runs, other.page_runs).empty())
    return Error{Error::Kind::kInvalid,
                 fmt::format("instances {} and {} have nothing in common in their pages; start them with the same model and cache types",
                             instance, other_instance)};
  return {};
}

std::byte* object(const Region& region, int32_t id) {
  BATON_CHECK_MSG(has(region, id), "object {} of a region of {}", id, region.objects);
  return region.data + int64_t{id} * region.object_bytes;
}

Status check_receiver(const Part& part, int32_t pages, int32_t slots) {
  const auto within = [pages](int32_t page) { return page >= 0 && page < pages; };
  if (std::ranges::all_of(part.to_pages, within) && part.to_slot < slots) return {};
  return Error{Error::Kind::kInvalid, fmt::format("a write for instance {} goes to pages or a slot that it does not have; it has {} and {}",
                                                  part.to.instance, pages, slots)};
}

std::vector<Extent> sent_extents(const Memory& from, const Route& route, const Part& part) {
  std::vector<Extent> extents;
  extents.reserve(part.from_pages.size() * route.page.size());
  for (const int32_t page : part.from_pages)
    for (const Slice& s : route.page) extents.push_back({object(from.pages, page) + s.from, s.bytes});
  if (part.from_slot >= 0)
    for (const auto& [s, of] : route.slot)
      if ((of & part.slot_parts) != 0) extents.push_back({object(from.slots, part.from_slot) + s.from, s.bytes});
  return extents;
}

std::vector<Extent> held_extents(const Memory& memory, std::span<const int32_t> pages, int32_t slot, uint32_t slot_parts) {
  std::vector<Extent> extents;
  extents.reserve(pages.size() * memory.page_runs.size());
  for (const int32_t page : pages)
    for (const Run& run : memory.page_runs) extents.push_back({object(memory.pages, page) + run.offset, run.bytes});
  if (slot >= 0)
    for (const SlotRun& run : memory.slot_runs)
      if ((run.part & slot_parts) != 0) extents.push_back({object(memory.slots, slot) + run.run.offset, run.run.bytes});
  return extents;
}

uint64_t checksum_of(std::span<const Extent> extents) {
  struct FreeState {
    void operator()(XXH3_state_t* s) const { XXH3_freeState(s); }
  };
  const std::unique_ptr<XXH3_state_t, FreeState> state(XXH3_createState());
  BATON_CHECK(state != nullptr);
  XXH3_64bits_reset(state.get());
  for (const Extent& e : extents) XXH3_64bits_update(state.get(), e.data, static_cast<size_t>(e.bytes));
  return XXH3_64bits_digest(state.get());
}

}  // namespace baton::transfer
