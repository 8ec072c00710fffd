#include "transfer/in_process.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
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

bool has(const Region& region, int32_t id) { return id >= 0 && id < region.objects; }

std::byte* object(const Region& region, int32_t id) {
  BATON_CHECK_MSG(has(region, id), "object {} of a region of {}", id, region.objects);
  return region.data + int64_t{id} * region.object_bytes;
}

}  // namespace

Exchange::Route Exchange::route(const Memory& from, const Memory& to) {
  Route r{.page = slices(from.page_runs, to.page_runs), .slot = {}};
  for (const SlotRun& wanted : to.slot_runs)
    for (const SlotRun& has : from.slot_runs)
      for (const Slice& s : slices({&has.run, 1}, {&wanted.run, 1})) r.slot.emplace_back(s, wanted.part);
  return r;
}

Status InProcess::enter(Agent self, Memory memory) {
  const std::lock_guard lock(exchange_.mutex_);
  BATON_CHECK_MSG(!exchange_.here_.contains(self) && self_ == Agent{}, "process {}.{} is here already", self.instance, self.epoch);
  std::map<std::pair<Agent, Agent>, Exchange::Route> routes;
  for (const auto& [other, transport] : exchange_.here_) {
    const Memory& theirs = transport->memory_;
    if (memory.fingerprint != theirs.fingerprint)
      return Error{Error::Kind::kInvalid, fmt::format("instances {} and {} have different models or cache types; start them with the same",
                                                      self.instance, other.instance)};
    Exchange::Route there = Exchange::route(memory, theirs);
    if (!memory.page_runs.empty() && !theirs.page_runs.empty() && there.page.empty())
      return Error{Error::Kind::kInvalid,
                   fmt::format("instances {} and {} have nothing in common in their pages; start them with the same model "
                               "and cache types",
                               self.instance, other.instance)};
    routes[{self, other}] = std::move(there);
    routes[{other, self}] = Exchange::route(theirs, memory);
  }
  self_ = self;
  memory_ = std::move(memory);
  exchange_.routes_.merge(routes);
  exchange_.here_.emplace(self, this);
  return {};
}

void InProcess::leave() {
  const std::lock_guard lock(exchange_.mutex_);
  if (exchange_.here_.erase(self_) == 0) return;
  std::erase_if(exchange_.routes_, [this](const auto& r) { return r.first.first == self_ || r.first.second == self_; });
  posted_.clear();
}

Status InProcess::post(Part part) {
  const std::lock_guard lock(exchange_.mutex_);
  const auto to = exchange_.here_.find(part.to);
  if (to == exchange_.here_.end() || !exchange_.here_.contains(self_))
    return Error{Error::Kind::kNotFound,
                 fmt::format("instance {} (epoch {}) is not here; it may have been started again", part.to.instance, part.to.epoch)};
  const Memory& theirs = to->second->memory_;
  const bool pages = std::ranges::all_of(part.to_pages, [&theirs](int32_t page) { return has(theirs.pages, page); });
  if (!pages || (part.to_slot >= 0 && !has(theirs.slots, part.to_slot)))
    return Error{Error::Kind::kInvalid,
                 fmt::format("a write for instance {} goes to pages or a slot that it does not have; it has {} and {}", part.to.instance,
                             theirs.pages.objects, theirs.slots.objects)};
  BATON_CHECK(part.from_pages.size() == part.to_pages.size() && std::ssize(part.notice) <= kMostNoticeBytes);
  posted_.push_back(std::move(part));
  return {};
}

void InProcess::progress() {
  completions_.clear();
  arrivals_.clear();
  const std::lock_guard lock(exchange_.mutex_);
  arrivals_.swap(incoming_);
  metrics_.arrived += std::ssize(arrivals_);
  for (; !posted_.empty(); posted_.pop_front()) {
    Part& part = posted_.front();
    ++metrics_.parts;
    const auto to = exchange_.here_.find(part.to);
    if (to == exchange_.here_.end()) {
      ++metrics_.failed;
      ++metrics_.failures[static_cast<size_t>(Failure::kGone)];
      completions_.push_back({.tag = part.tag});
      continue;
    }
    InProcess& receiver = *to->second;
    completions_.push_back(carry(part, receiver.memory_, exchange_.routes_.at({self_, part.to})));
    receiver.incoming_.push_back({self_, std::move(part.notice)});
    receiver.notify_();  // it cannot leave before the lock is free
  }
}

Completion InProcess::carry(const Part& part, const Memory& to, const Exchange::Route& r) {
  Checksum sum;
  for (size_t i = 0; i < part.from_pages.size(); ++i) {
    const std::byte* source = object(memory_.pages, part.from_pages[i]);
    std::byte* target = object(to.pages, part.to_pages[i]);
    for (const Slice& s : r.page) {
      std::memcpy(target + s.to, source + s.from, static_cast<size_t>(s.bytes));
      sum.add(source + s.from, s.bytes);
      metrics_.page_bytes += s.bytes;
    }
  }
  if (part.from_slot >= 0) {
    const std::byte* source = object(memory_.slots, part.from_slot);
    std::byte* target = object(to.slots, part.to_slot);
    for (const auto& [s, of] : r.slot) {
      if ((of & part.slot_parts) == 0) continue;
      std::memcpy(target + s.to, source + s.from, static_cast<size_t>(s.bytes));
      sum.add(source + s.from, s.bytes);
      metrics_.slot_bytes += s.bytes;
    }
  }
  return {.tag = part.tag, .ok = true, .checksum = sum.value()};
}

uint64_t InProcess::checksum(std::span<const int32_t> pages, int32_t slot, uint32_t slot_parts) const {
  Checksum sum;
  for (const int32_t page : pages)
    for (const Run& run : memory_.page_runs) sum.add(object(memory_.pages, page) + run.offset, run.bytes);
  if (slot >= 0)
    for (const SlotRun& run : memory_.slot_runs)
      if ((run.part & slot_parts) != 0) sum.add(object(memory_.slots, slot) + run.run.offset, run.run.bytes);
  return sum.value();
}

}  // namespace baton::transfer
