#include "engine/prefill_role.h"

#include <iterator>

namespace baton::engine {

PrefillRole::PrefillRole(const pd::PrefillOptions& options, const HandOverLinks& links, transfer::Memory memory)
    : end_(options), link_(links, std::move(memory)) {
  BATON_CHECK(options.self == links.self);
}

Status PrefillRole::start(sched::Scheduler& scheduler, std::function<void()> wake) {
  scheduler_ = &scheduler;
  return link_.enter(std::move(wake));
}

Status PrefillRole::check(const sched::RequestSpec&) const {
  return Error{Error::Kind::kUnsupported, "this instance computes prompts for others; send requests to a decode instance"};
}

Status PrefillRole::submit(sched::RequestId, sched::RequestSpec spec, sched::Time) { return check(spec); }

void PrefillRole::cancel(sched::RequestId, sched::Time) {}

void PrefillRole::receive(std::span<const std::byte> message, sched::Time now) {
  if (const auto envelope = link_.read(message)) end_.receive(*envelope, now);
}

void PrefillRole::advance(sched::Time now) {
  progress();
  do {
    end_.advance(now);
    std::vector<pd::PrefillAction> actions(std::make_move_iterator(end_.actions().begin()), std::make_move_iterator(end_.actions().end()));
    end_.clear_actions();
    for (pd::PrefillAction& a : actions) std::visit([&](auto& action) { carry_out(action, now); }, a);
    if (!posted_.empty()) progress();
  } while (busy());
}

void PrefillRole::progress() {
  link_.transport().progress();
  for (const transfer::Completion& done : link_.transport().completions()) {
    const auto posted = posted_.extract(done.tag);
    BATON_CHECK(!posted.empty());
    end_.written(posted.mapped().job, posted.mapped().part, done.ok, done.checksum);
  }
}

void PrefillRole::carry_out(pd::StartJob& a, sched::Time now) {
  sched::RequestSpec spec;
  spec.prompt = *a.tokens;
  spec.salt = a.salt;
  spec.cache_prompt = a.cache;
  spec.prompt_only = true;
  Status taken = sched::Scheduler::check(spec, scheduler_->options());
  if (taken.ok()) taken = scheduler_->submit(a.job, std::move(spec), now);
  if (taken.ok()) {
    running_.insert(a.job);
    return;
  }
  log_warning("an order is refused: {}", taken.error().message);
  end_.failed(a.job);
}

void PrefillRole::carry_out(pd::StopJob& a, sched::Time) { scheduler_->let_go(a.job); }

void PrefillRole::carry_out(pd::Write& a, sched::Time) {
  const uint64_t tag = next_tag_++;
  const Status posted = link_.transport().post({.to = HandOverLink::agent(a.to),
                                                .from_pages = std::move(a.from_pages),
                                                .to_pages = std::move(a.to_pages),
                                                .from_slot = a.from_slot,
                                                .to_slot = a.to_slot,
                                                .slot_parts = a.slot_parts,
                                                .tag = tag,
                                                .notice = pd::encode({link_.self(), a.to, 0, a.notice})});
  if (posted.ok()) {
    posted_.emplace(tag, Posted{a.job, a.notice.part});
    return;
  }
  log_warning("instance {} cannot be written to: {}", a.to.instance, posted.error().message);
  end_.written(a.job, a.notice.part, false, 0);
}

void PrefillRole::carry_out(pd::SendReply& a, sched::Time) { link_.send(a.envelope); }

bool PrefillRole::takes(const sched::Event& e, sched::Time) {
  if (e.computed >= 0) {
    const sched::Scheduler::Holding h = scheduler_->holding(e.request);
    end_.computed(e.request, e.computed, h.cached_tokens, h.pages, h.slot);
  }
  if (e.last) running_.erase(e.request);
  if (e.last && e.reason != sched::FinishReason::kStop) end_.failed(e.request);
  return true;
}

void PrefillRole::stop() {
  link_.leave();
  for (const pd::JobId job : std::unordered_set<pd::JobId>(running_)) scheduler_->cancel(job);
}

RoleMetrics PrefillRole::metrics() const {
  return {.decode = {}, .prefill = end_.metrics(), .transfer = link_.transferred(), .garbled = link_.garbled()};
}

}  // namespace baton::engine
