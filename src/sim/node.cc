#include "sim/node.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace baton::sim {

Node::Node(const NodeOptions& options, Surroundings& world)
    : options_(options), world_(world), scheduler_(std::move(sched::Scheduler::create(options.scheduler)).value()) {
  const sched::SchedulerOptions& o = options.scheduler;
  if (options.contents)
    device_.emplace(o.memory);
  else
    timed_.emplace(o.memory.slots, static_cast<int32_t>(o.vocabulary), options.yield, options.self.instance);
}

void Node::launch() {
  while (scheduler_->in_flight() < sched::kCyclesInFlight && scheduler_->plan(local(), planning_)) {
    const Time cost = world_.cycle_time(options_.self, planning_);
    device_free_ = std::max(device_free_, world_.now()) + cost;
    launched_.push_back(std::move(planning_));
    planning_ = {};
    world_.later(options_.self, device_free_, [this] { complete(); });
  }
  tell();
}

void Node::complete() {
  if (broken_ || scheduler_->failing()) {  // cycles behind one that failed go on with what it left
    broken_ = false;
    if (device_) device_->spoil();
    device_failed();
    scheduler_->fail();
  } else if (device_) {
    scheduler_->complete(device_->run(launched_.front()));
  } else {
    scheduler_->complete(timed_->run(launched_.front()));
  }
  launched_.pop_front();
  tell();
  pump();
}

const std::string& Node::device_problem() const {
  static const std::string none;
  return device_ ? device_->problem() : none;
}

void Node::tell_tokens() {
  const std::vector<sched::Event> events(scheduler_->events().begin(), scheduler_->events().end());
  scheduler_->clear_events();
  for (const sched::Event& e : events) {
    if (e.token >= 0) world_.token(e.request, e.token);
    if (e.last) world_.end(e.request, e.reason, e.usage.cached_tokens);
  }
}

void Node::wake_at(Time local_time) {
  // With all cycles under way nothing is planned, and so nothing expires, before one of them is done.
  if (scheduler_->in_flight() < sched::kCyclesInFlight) local_time = std::min(local_time, scheduler_->next_deadline());
  if (local_time == sched::kNever) return;
  const Time at = std::max(options_.clock.world(local_time), world_.now() + 1);
  if (wake_ > world_.now() && wake_ <= at) return;  // it will look again anyhow
  wake_ = at;
  world_.later(options_.self, at, [this] { pump(); });
}

std::string Node::check_idle() const {
  const sched::Metrics& m = scheduler_->metrics();
  const sched::Memory& memory = std::as_const(*scheduler_).memory();
  if (memory.pages.held_count() != 0) return fmt::format("{} pages are held although nothing is left to do", memory.pages.held_count());
  if (memory.slots.held_count() != 0) return fmt::format("{} slots are held although nothing is left to do", memory.slots.held_count());
  if (memory.tree.locked_count() != 0) return fmt::format("{} paths are locked although nothing is left to do", memory.tree.locked_count());
  if (m.host_slots_free != m.host_slots || m.host_pages_free != m.host_pages) return "host memory is held although nothing is left to do";
  return {};
}

bool UnifiedNode::submit(pd::RequestKey key, sched::RequestSpec spec) {
  if (!scheduler_->submit(key, std::move(spec), local()).ok()) return false;
  pump();
  return true;
}

std::string UnifiedNode::check(bool deep) const {
  if (!device_problem().empty()) return device_problem();
  if (deep) scheduler_->check_invariants();
  return idle() ? check_idle() : std::string();
}

DecodeNode::DecodeNode(const NodeOptions& options, Surroundings& world)
    : Node(options, world), zone_(scheduler_->memory().pages, scheduler_->memory().slots, scheduler_->memory().tree),
      end_({.self = options.self,
            .slots = options.scheduler.memory.slots,
            .most_waiting = options.most_waiting,
            .remembered_pages = options.remembered_pages},
           zone_) {
  for (const pd::InstanceId p : options.prefills) end_.add_prefill(p);
}

bool DecodeNode::submit(pd::RequestKey key, const sched::RequestSpec& spec, Time within) {
  const Time deadline = within == sched::kNever ? pd::kNever : local() + within;
  auto tokens = std::make_shared<const std::vector<int32_t>>(spec.prompt);
  if (!end_.submit(key, {std::move(tokens), spec.salt, spec.cache_prompt, deadline}, local()).ok()) return false;
  sched::RequestSpec& kept = specs_[key] = spec;
  kept.deadline = deadline;
  pump();
  return true;
}

void DecodeNode::cancel(pd::RequestKey key) {
  if (specs_.contains(key))
    end_.cancel(key, local());
  else
    scheduler_->cancel(key);
  tell();
  pump();
}

void DecodeNode::receive(const pd::Envelope& envelope) {
  end_.receive(envelope, local());
  pump();
}

void DecodeNode::gone(pd::Process process) {
  end_.gone(process, local());
  pump();
}

// Who was retracted has been here longer than who waits for a prompt.
void DecodeNode::pump() {
  while (true) {
    end_.advance(local(), scheduler_->growing(), scheduler_->metrics().retracted == 0 && !scheduler_->failing());
    if (end_.actions().empty()) break;
    std::vector<pd::DecodeAction> actions(std::make_move_iterator(end_.actions().begin()), std::make_move_iterator(end_.actions().end()));
    end_.clear_actions();
    for (pd::DecodeAction& a : actions) carry_out(a);
  }
  launch();
  wake_at(end_.next_wake());
}

void DecodeNode::carry_out(pd::DecodeAction& action) {
  if (auto* send = std::get_if<pd::Send>(&action)) {
    world_.send(send->envelope);
  } else if (auto* v = std::get_if<pd::Verify>(&action)) {
    verify(*v);
  } else if (auto* landed = std::get_if<pd::Landed>(&action)) {
    const auto spec = specs_.extract(landed->request);
    BATON_CHECK(!spec.empty());
    pd::Landing& l = landed->landing;
    scheduler_->land(landed->request, std::move(spec.mapped()),
                     {.slot = l.slot,
                      .pages = std::move(l.pages),
                      .tree_pages = l.tree_pages,
                      .node = l.node,
                      .cached_tokens = int64_t{landed->reused_pages} * cache::kPageUnits,
                      .waited = landed->waited,
                      .reset_ring = landed->reset_ring},
                     local());
  } else if (auto* ended = std::get_if<pd::Ended>(&action)) {
    BATON_CHECK(specs_.erase(ended->request) == 1);
    using Reason = pd::EndReason;
    world_.end(ended->request,
               ended->reason == Reason::kCancelled  ? sched::FinishReason::kCancelled
               : ended->reason == Reason::kDeadline ? sched::FinishReason::kDeadline
                                                    : sched::FinishReason::kFailed,
               0);
  }
}

void DecodeNode::verify(const pd::Verify& v) {
  const std::vector<int32_t> pages(v.pages.begin(), v.pages.end());
  world_.later(options_.self, world_.now() + world_.check_time(options_.self, v), [this, v, pages] {
    std::vector<uint64_t> sums;
    for (const pd::PartRange& r : v.parts) {
      uint64_t sum = r.slot && device_ ? checksum(device_->slot(v.landing)) : 0;
      for (int32_t i = 0; device_ && i < r.pages; ++i) sum = checksum(device_->page(pages[static_cast<size_t>(r.first_page + i)]), sum);
      sums.push_back(sum);
    }
    end_.verified(v.ticket, v.landing, sums, local());
    pump();
  });
}

std::string DecodeNode::check(bool deep) const {
  if (!device_problem().empty()) return device_problem();
  const pd::DecodeMetrics& m = end_.metrics();
  if (m.contradictions > 0) return "prefill sent what cannot be true";
  if (idle())
    if (std::string wrong = check_idle(); !wrong.empty()) return wrong;
  if (deep) {
    scheduler_->check_invariants({.pages = end_.held_pages(), .slots = end_.held_slots()});
    end_.check_invariants();
  }
  return {};
}

PrefillNode::PrefillNode(const NodeOptions& options, Surroundings& world)
    : Node(options, world),
      end_({.self = options.self, .credits = options.credits, .context_tokens = options.scheduler.context_tokens - 1}) {}

void PrefillNode::receive(const pd::Envelope& envelope) {
  end_.receive(envelope, local());
  pump();
}

void PrefillNode::gone(pd::Process process) {
  end_.gone(process);
  pump();
}

void PrefillNode::written(pd::JobId job, int32_t part, bool ok, uint64_t sum) {
  end_.written(job, part, ok, sum);
  pump();
}

void PrefillNode::pump() {
  while (true) {
    end_.advance(local());
    if (end_.actions().empty()) {
      launch();
      if (end_.actions().empty()) break;
    }
    const std::vector<pd::PrefillAction> actions(std::make_move_iterator(end_.actions().begin()),
                                                 std::make_move_iterator(end_.actions().end()));
    end_.clear_actions();
    for (const pd::PrefillAction& a : actions) carry_out(a);
    tell();
  }
  wake_at(end_.next_wake());
}

void PrefillNode::carry_out(const pd::PrefillAction& action) {
  if (const auto* start = std::get_if<pd::StartJob>(&action)) {
    sched::RequestSpec spec;
    spec.prompt = *start->tokens;
    spec.salt = start->salt;
    spec.cache_prompt = start->cache;
    spec.prompt_only = true;
    const bool taken =
        sched::Scheduler::check(spec, scheduler_->options()).ok() && scheduler_->submit(start->job, std::move(spec), local()).ok();
    if (!taken) end_.failed(start->job);
  } else if (const auto* stop = std::get_if<pd::StopJob>(&action)) {
    scheduler_->let_go(stop->job);
  } else if (const auto* write = std::get_if<pd::Write>(&action)) {
    world_.post(options_.self, *write);
  } else if (const auto* reply = std::get_if<pd::SendReply>(&action)) {
    world_.send(reply->envelope);
  }
}

void PrefillNode::tell() {
  const std::vector<sched::Event> events(scheduler_->events().begin(), scheduler_->events().end());
  scheduler_->clear_events();
  for (const sched::Event& e : events) {
    if (e.computed >= 0) {
      const sched::Scheduler::Holding h = scheduler_->holding(e.request);
      end_.computed(e.request, e.computed, h.cached_tokens, h.pages, h.slot);
    }
    if (e.last && e.reason == sched::FinishReason::kFailed) lost_.insert(e.request);
    if (e.last && e.reason != sched::FinishReason::kStop) end_.failed(e.request);
  }
}

std::string PrefillNode::check(bool deep) const {
  if (!device_problem().empty()) return device_problem();
  if (end_.metrics().contradictions > 0) return "decode ordered what cannot be meant";
  if (idle())
    if (std::string wrong = check_idle(); !wrong.empty()) return wrong;
  if (deep) {
    scheduler_->check_invariants();
    end_.check_invariants();
  }
  return {};
}

}  // namespace baton::sim
