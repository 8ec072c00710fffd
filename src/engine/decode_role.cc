#include "engine/decode_role.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "pd/prefill_end.h"

namespace baton::engine {

DecodeRole::DecodeRole(const pd::DecodeOptions& options, std::span<const pd::InstanceId> prefills, const HandOverLinks& links,
                       transfer::Memory memory)
    : options_(options), prefills_(prefills.begin(), prefills.end()), link_(links, std::move(memory)) {
  BATON_CHECK(options.self == links.self);
}

Status DecodeRole::start(sched::Scheduler& scheduler, std::function<void()> wake) {
  BATON_CHECK_MSG(scheduler.options().memory.snapshots == 0, "a decode instance has no use for {} snapshots",
                  scheduler.options().memory.snapshots);
  scheduler_ = &scheduler;
  sched::Memory& m = scheduler.memory();
  zone_.emplace(m.pages, m.slots, m.tree, scheduler.options().look_ahead);
  end_.emplace(options_, *zone_);
  for (const pd::InstanceId p : prefills_) end_->add_prefill(p);
  return link_.enter(std::move(wake));
}

Status DecodeRole::check(const sched::RequestSpec& spec) const {
  const char* field = spec.choices != 1                    ? "choices (n) above 1"
                      : spec.sampling.prompt_logprobs >= 0 ? "prompt_logprobs"
                      : spec.prompt_only                   ? "prompt_only"
                                                           : nullptr;
  if (field == nullptr) return {};
  return Error{Error::Kind::kUnsupported, fmt::format("{} is not there yet where prefill is another instance", field)};
}

Status DecodeRole::submit(sched::RequestId id, sched::RequestSpec spec, sched::Time now) {
  auto tokens = std::make_shared<const std::vector<int32_t>>(spec.prompt);
  BATON_TRY(end_->submit(id, {std::move(tokens), spec.salt, spec.cache_prompt, spec.deadline}, now));
  waiting_.emplace(id, std::move(spec));
  return {};
}

void DecodeRole::cancel(sched::RequestId id, sched::Time now) { waiting_.contains(id) ? end_->cancel(id, now) : scheduler_->cancel(id); }

void DecodeRole::receive(std::span<const std::byte> message, sched::Time now) {
  if (const auto envelope = link_.read(message)) end_->receive(*envelope, now);
}

void DecodeRole::advance(sched::Time now) {
  link_.transport().progress();
  for (const transfer::Arrival& a : link_.transport().arrivals()) receive(a.notice, now);
  do {
    // Who was retracted has been here longer than who waits for a prompt.
    end_->advance(now, scheduler_->growing(), scheduler_->metrics().retracted == 0 && !scheduler_->failing());
    std::vector<pd::DecodeAction> actions(std::make_move_iterator(end_->actions().begin()), std::make_move_iterator(end_->actions().end()));
    end_->clear_actions();
    for (pd::DecodeAction& a : actions) std::visit([&](auto& action) { carry_out(action, now); }, a);
  } while (busy());
}

void DecodeRole::carry_out(pd::Send& a, sched::Time) { link_.send(a.envelope); }

void DecodeRole::carry_out(pd::Verify& a, sched::Time now) {
  std::vector<uint64_t> sums;
  for (const pd::PartRange& r : a.parts)
    sums.push_back(link_.transport().checksum(a.pages.subspan(static_cast<size_t>(r.first_page), static_cast<size_t>(r.pages)),
                                              r.slot ? a.landing : -1, pd::slot_part::kAll));
  end_->verified(a.ticket, a.landing, sums, now);
}

void DecodeRole::carry_out(pd::Landed& a, sched::Time now) {
  auto waiting = waiting_.extract(a.request);
  BATON_CHECK(!waiting.empty());
  pd::Landing& l = a.landing;
  const int64_t most_cached = std::ssize(waiting.mapped().prompt) - 1;
  scheduler_->land(a.request, std::move(waiting.mapped()),
                   {.slot = l.slot,
                    .pages = std::move(l.pages),
                    .tree_pages = l.tree_pages,
                    .node = l.node,
                    .cached_tokens = std::min(most_cached, int64_t{a.reused_pages} * cache::kPageUnits),
                    .waited = a.waited,
                    .reset_ring = a.reset_ring},
                   now);
}

void DecodeRole::carry_out(pd::Ended& a, sched::Time) {
  const auto waiting = waiting_.extract(a.request);
  BATON_CHECK(!waiting.empty());
  using sched::FinishReason;
  sched::Event end;
  end.request = a.request;
  end.last = true;
  end.reason = a.reason == pd::EndReason::kCancelled  ? FinishReason::kCancelled
               : a.reason == pd::EndReason::kDeadline ? FinishReason::kDeadline
                                                      : FinishReason::kFailed;
  end.usage.prompt_tokens = std::ssize(waiting.mapped().prompt);
  events_.push_back(end);
}

RoleMetrics DecodeRole::metrics() const {
  return {.decode = end_->metrics(), .prefill = {}, .transfer = link_.transferred(), .garbled = link_.garbled()};
}

}  // namespace baton::engine
