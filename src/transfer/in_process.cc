#include "transfer/in_process.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"

namespace baton::transfer {

Status InProcess::enter(Agent self, Memory memory) {
  const std::lock_guard lock(exchange_.mutex_);
  BATON_CHECK_MSG(!exchange_.here_.contains(self) && self_ == Agent{}, "process {}.{} is here already", self.instance, self.epoch);
  std::map<std::pair<Agent, Agent>, Route> routes;
  for (const auto& [other, transport] : exchange_.here_) {
    const Memory& theirs = transport->memory_;
    BATON_TRY(check_match(self.instance, memory, other.instance, theirs));
    routes[{self, other}] = route(memory, theirs);
    routes[{other, self}] = route(theirs, memory);
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
  BATON_TRY(check_receiver(part, theirs.pages.objects, theirs.slots.objects));
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
    receiver.incoming_.push_back({self_, completions_.back().checksum, std::move(part.notice)});
    receiver.notify_();  // it cannot leave before the lock is free
  }
}

Completion InProcess::carry(const Part& part, const Memory& to, const Route& r) {
  for (size_t i = 0; i < part.from_pages.size(); ++i) {
    const std::byte* source = object(memory_.pages, part.from_pages[i]);
    std::byte* target = object(to.pages, part.to_pages[i]);
    for (const Slice& s : r.page) {
      std::memcpy(target + s.to, source + s.from, static_cast<size_t>(s.bytes));
      metrics_.page_bytes += s.bytes;
    }
  }
  if (part.from_slot >= 0) {
    const std::byte* source = object(memory_.slots, part.from_slot);
    std::byte* target = object(to.slots, part.to_slot);
    for (const auto& [s, of] : r.slot) {
      if ((of & part.slot_parts) == 0) continue;
      std::memcpy(target + s.to, source + s.from, static_cast<size_t>(s.bytes));
      metrics_.slot_bytes += s.bytes;
    }
  }
  return {.tag = part.tag, .ok = true, .checksum = checksum_of(sent_extents(memory_, r, part))};
}

uint64_t InProcess::checksum(std::span<const int32_t> pages, int32_t slot, uint32_t slot_parts) const {
  return checksum_of(held_extents(memory_, pages, slot, slot_parts));
}

}  // namespace baton::transfer
