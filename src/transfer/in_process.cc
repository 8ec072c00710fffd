#include "transfer/in_process.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>
#include <memory>

#include "base/check.h"

namespace baton::transfer {
namespace {

struct FreeState {
  void operator()(XXH3_state_t* s) const { XXH3_freeState(s); }
};

// Over bytes in the order of the receiver's layout: sender and receiver take different ways to the same bytes.
class Checksum {
 public:
  Checksum() : state_(XXH3_createState()) {
    BATON_CHECK(state_ != nullptr);
    XXH3_64bits_reset(state_.get());
  }
  void add(const std::byte* p, int64_t bytes) { XXH3_64bits_update(state_.get(), p, static_cast<size_t>(bytes)); }
  uint64_t value() const { return XXH3_64bits_digest(state_.get()); }

 private:
  std::unique_ptr<XXH3_state_t, FreeState> state_;
};

std::byte* object(const Region& region, int32_t id) {
  BATON_CHECK_MSG(id >= 0 && id < region.objects, "object {} of a region of {}", id, region.objects);
  return region.data + int64_t{id} * region.object_bytes;
}

}  // namespace

InProcess::Route InProcess::route(const Memory& from, const Memory& to) {
  Route r{.page = slices(from.page_runs, to.page_runs), .slot = {}};
  for (const SlotRun& wanted : to.slot_runs)
    for (const SlotRun& has : from.slot_runs)
      for (const Slice& s : slices({&has.run, 1}, {&wanted.run, 1})) r.slot.emplace_back(s, wanted.part);
  return r;
}

Status InProcess::enter(Agent agent, Memory memory) {
  BATON_CHECK_MSG(!agents_.contains(agent), "process {}.{} is here already", agent.instance, agent.epoch);
  for (const auto& [other, theirs] : agents_) {
    Route there = route(memory, theirs);
    Route back = route(theirs, memory);
    if (!memory.page_runs.empty() && !theirs.page_runs.empty() && there.page.empty()) {
      leave(agent);
      return Error{Error::Kind::kInvalid,
                   fmt::format("instances {} and {} have nothing in common in their pages; start them with the same model "
                               "and cache types",
                               agent.instance, other.instance)};
    }
    routes_[{agent, other}] = std::move(there);
    routes_[{other, agent}] = std::move(back);
  }
  agents_.emplace(agent, std::move(memory));
  return {};
}

void InProcess::leave(Agent agent) {
  agents_.erase(agent);
  std::erase_if(routes_, [agent](const auto& r) { return r.first.first == agent || r.first.second == agent; });
}

Status InProcess::post(const Part& part) {
  for (const Agent a : {part.from, part.to})
    if (!agents_.contains(a))
      return Error{Error::Kind::kNotFound,
                   fmt::format("instance {} (epoch {}) is not here; it may have been started again", a.instance, a.epoch)};
  BATON_CHECK(part.from_pages.size() == part.to_pages.size());
  posted_.push_back(part);
  return {};
}

void InProcess::progress() {
  arrivals_.clear();
  completions_.clear();
  for (; !posted_.empty(); posted_.pop_front()) {
    const Part& part = posted_.front();
    if (!agents_.contains(part.from)) continue;  // nobody is there to hear of it
    Completion done{.tag = part.tag, .from = part.from};
    ++metrics_.parts;
    if (agents_.contains(part.to)) {
      carry(part, done);
      arrivals_.push_back({part.tag, part.from, part.to});
    } else {
      ++metrics_.failed;
    }
    completions_.push_back(done);
  }
}

void InProcess::carry(const Part& part, Completion& completion) {
  const Memory& from = agents_.at(part.from);
  const Memory& to = agents_.at(part.to);
  const Route& r = routes_.at({part.from, part.to});
  Checksum sum;
  for (size_t i = 0; i < part.from_pages.size(); ++i) {
    const std::byte* source = object(from.pages, part.from_pages[i]);
    std::byte* target = object(to.pages, part.to_pages[i]);
    for (const Slice& s : r.page) {
      std::memcpy(target + s.to, source + s.from, static_cast<size_t>(s.bytes));
      sum.add(source + s.from, s.bytes);
      metrics_.page_bytes += s.bytes;
    }
  }
  if (part.from_slot >= 0) {
    const std::byte* source = object(from.slots, part.from_slot);
    std::byte* target = object(to.slots, part.to_slot);
    for (const auto& [s, of] : r.slot) {
      if ((of & part.slot_parts) == 0) continue;
      std::memcpy(target + s.to, source + s.from, static_cast<size_t>(s.bytes));
      sum.add(source + s.from, s.bytes);
      metrics_.slot_bytes += s.bytes;
    }
  }
  completion.checksum = sum.value();
  completion.ok = true;
}

uint64_t InProcess::checksum(Agent agent, std::span<const int32_t> pages, int32_t slot, uint32_t slot_parts) const {
  const Memory& m = agents_.at(agent);
  Checksum sum;
  for (const int32_t page : pages)
    for (const Run& run : m.page_runs) sum.add(object(m.pages, page) + run.offset, run.bytes);
  if (slot >= 0)
    for (const SlotRun& run : m.slot_runs)
      if ((run.part & slot_parts) != 0) sum.add(object(m.slots, slot) + run.run.offset, run.run.bytes);
  return sum.value();
}

}  // namespace baton::transfer
