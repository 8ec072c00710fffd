#include "pd/prefill_end.h"

#include <algorithm>

#include "base/check.h"
#include "cache/prefix_tree.h"
#include "pd/planted_bug.h"

namespace baton::pd {
namespace {

int64_t page_count(int64_t tokens) { return (tokens + cache::kPageUnits - 1) / cache::kPageUnits; }

}  // namespace

PrefillEnd::PrefillEnd(const PrefillOptions& options) : options_(options) { BATON_CHECK(options.self.epoch > 0 && options.credits > 0); }

void PrefillEnd::receive(const Envelope& e, Time now) {
  const bool mine = e.to.instance == options_.self.instance;
  if (!mine || e.from.epoch == 0) {
    ++metrics_.stray_messages;
    return;
  }
  Client& c = clients_[e.from.instance];
  if (c.process.epoch == 0 || planted(Bug::kEpochIgnored)) c.process = e.from;
  if (e.from.epoch > c.process.epoch) {  // the process before it is gone
    gone(c.process);
    c = {.process = e.from};
  } else if (e.from.epoch < c.process.epoch || c.gone) {
    // Of a process that is gone, what was still on the way: its orders are forgotten, so a repeated one would look like a new one.
    ++metrics_.stray_messages;
    return;
  }
  c.low_water = std::max(c.low_water, e.low_water);
  forget(c);
  // Meant for the process before this one, or for whoever is there: the grant tells who that is.
  if (e.to.epoch != options_.self.epoch && !planted(Bug::kEpochIgnored)) return grant(c);
  std::visit(
      [&](const auto& body) {
        if constexpr (requires { handle(c, body, now); })
          handle(c, body, now);
        else
          ++metrics_.contradictions;  // what only prefill says
      },
      e.body);
}

void PrefillEnd::handle(Client& c, const Ping&, Time) { grant(c); }

void PrefillEnd::handle(Client& c, const Order& m, Time now) {
  if (m.ticket < c.low_water) {
    ++metrics_.stray_messages;
    return;
  }
  if (const auto known = c.jobs.find(m.ticket); known != c.jobs.end()) {
    ++metrics_.repeated_orders;
    const Job& j = jobs_.at(known->second);
    return is_end(j.state) ? repeat(j) : grant(c);  // any message is a sign of life
  }
  if (c.taken >= c.granted) {
    ++metrics_.contradictions;
    return;
  }
  ++metrics_.orders;
  JobId id = 0;
  Job& j = add(c, m, id);
  if (!meant(m)) {
    ++metrics_.contradictions;
    j.stopped = true;
  }
  j.deadline = m.within >= kNever - now ? kNever : now + m.within;
  j.sent_pages = m.matched_pages;
  transitions_.move(j.state, JobState::kQueued);
  ++metrics_.active;
  if (j.stopped) return revoke(id, j, JobState::kFailed);
  actions_.emplace_back(StartJob{id, m.tokens, m.salt, m.cache});
}

bool PrefillEnd::meant(const Order& m) const {
  if (m.tokens == nullptr || m.tokens->empty() || std::ssize(*m.tokens) > options_.context_tokens) return false;
  const int64_t pages = page_count(std::ssize(*m.tokens));
  return m.matched_pages >= 0 && m.matched_pages <= std::ssize(*m.tokens) / cache::kPageUnits &&
         std::ssize(m.pages) == pages - m.matched_pages && m.slot >= 0;
}

PrefillEnd::Job& PrefillEnd::add(Client& c, const Order& m, JobId& id) {
  id = next_job_++;
  c.jobs.emplace(m.ticket, id);
  ++c.taken;
  Job& j = jobs_[id];
  j.client = c.process;
  j.order = m;
  return j;
}

void PrefillEnd::handle(Client& c, const Cancel& m, Time) {
  const auto known = c.jobs.find(m.ticket);
  if (known != c.jobs.end()) {
    Job& j = jobs_.at(known->second);
    if (is_end(j.state)) return reply(c.process, Drained{m.ticket, m.landing});
    if (j.state != JobState::kRevoking) return revoke(known->second, j, JobState::kRevoked);
    j.ending = JobState::kRevoked;
    return;
  }
  if (m.ticket < c.low_water) return reply(c.process, Drained{m.ticket, m.landing});
  if (c.taken >= c.granted) {
    ++metrics_.contradictions;
    return;
  }
  // The order has not arrived, and now may not run when it does.
  JobId id = 0;
  Job& j = add(c, {.ticket = m.ticket, .landing = m.landing}, id);
  j.stopped = true;
  end(id, j, JobState::kRevoked);
}

// What has ended and needs no answer any more.
void PrefillEnd::forget(Client& c) {
  for (auto i = c.jobs.begin(); i != c.jobs.end() && i->first < c.low_water;) {
    if (!is_end(jobs_.at(i->second).state)) {
      ++i;
      continue;
    }
    jobs_.erase(i->second);
    --metrics_.remembered;
    i = c.jobs.erase(i);
  }
}

void PrefillEnd::gone(Process process) {
  const auto found = clients_.find(process.instance);
  if (found == clients_.end() || found->second.process != process) return;
  found->second.gone = true;
  const std::map<Ticket, JobId> jobs = std::move(found->second.jobs);
  found->second.jobs.clear();
  for (const auto& [ticket, id] : jobs) {
    Job& j = jobs_.at(id);
    j.orphan = true;
    if (is_end(j.state)) {
      jobs_.erase(id);
      --metrics_.remembered;
    } else if (j.state != JobState::kRevoking) {
      revoke(id, j, JobState::kRevoked);
    }
  }
}

void PrefillEnd::computed(JobId id, int64_t tokens, int64_t reused_tokens, std::span<const int32_t> pages, int32_t slot) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return;
  Job& j = found->second;
  if (j.state != JobState::kQueued && j.state != JobState::kComputing) return;  // revoked meanwhile
  const bool first = j.state == JobState::kQueued;
  if (first) {
    transitions_.move(j.state, JobState::kComputing);
    j.reused_pages = static_cast<int32_t>(reused_tokens / cache::kPageUnits);
    if (planted(Bug::kSlotSentEarly)) post_slot(id, j, slot);
  }
  const bool whole = tokens == std::ssize(*j.order.tokens);
  const auto ready = static_cast<int32_t>(whole ? page_count(tokens) : tokens / cache::kPageUnits);
  if (ready > j.sent_pages) {
    post(id, j, j.sent_pages, ready - j.sent_pages, pages);
    j.sent_pages = ready;
  }
  if (!whole) return;
  if (!planted(Bug::kSlotSentEarly)) post_slot(id, j, slot);
  transitions_.move(j.state, JobState::kSending);
  settle_if_over(id, j);
}

void PrefillEnd::post(JobId id, Job& j, int32_t first, int32_t count, std::span<const int32_t> pages) {
  Write w{.job = id, .to = j.client};
  const auto from = pages.begin() + first;
  const auto to = j.order.pages.begin() + (first - j.order.matched_pages);
  w.from_pages.assign(from, from + count);
  w.to_pages.assign(to, to + count);
  w.notice.range = {first, count, false};
  metrics_.pages_written += count;
  post(id, j, std::move(w));
}

void PrefillEnd::post_slot(JobId id, Job& j, int32_t slot) {
  Write w{.job = id, .to = j.client, .from_slot = slot, .to_slot = j.order.slot, .slot_parts = slot_part::kAll};
  if (planted(Bug::kTailNotSent)) w.slot_parts &= ~slot_part::kTail;
  w.notice.range = {0, 0, true};
  post(id, j, std::move(w));
}

void PrefillEnd::post(JobId, Job& j, Write write) {
  write.notice.ticket = j.order.ticket;
  write.notice.landing = j.order.landing;
  write.notice.part = static_cast<int32_t>(j.parts.size());
  j.parts.push_back(write.notice);
  j.checksums.push_back(0);
  ++j.in_flight;
  ++metrics_.writes;
  ++metrics_.writes_in_flight;
  actions_.emplace_back(std::move(write));
}

void PrefillEnd::written(JobId id, int32_t part, bool ok, uint64_t checksum) {
  Job& j = jobs_.at(id);
  BATON_CHECK(j.in_flight > 0);
  --j.in_flight;
  --metrics_.writes_in_flight;
  j.checksums[static_cast<size_t>(part)] = checksum;
  j.write_failed = j.write_failed || !ok;
  if (j.write_failed && j.state != JobState::kRevoking) return revoke(id, j, JobState::kFailed);
  settle_if_over(id, j);
}

void PrefillEnd::failed(JobId id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end() || is_end(found->second.state)) return;
  found->second.stopped = true;
  if (found->second.state != JobState::kRevoking) revoke(id, found->second, JobState::kFailed);
}

void PrefillEnd::advance(Time now) {
  for (auto& [id, j] : jobs_)
    if (j.deadline <= now && !is_end(j.state) && j.state != JobState::kRevoking) revoke(id, j, JobState::kExpired);
  std::erase_if(jobs_, [](const auto& job) { return job.second.orphan && is_end(job.second.state); });
}

Time PrefillEnd::next_wake() const {
  Time next = kNever;
  for (const auto& [id, j] : jobs_)
    if (!is_end(j.state) && j.state != JobState::kRevoking) next = std::min(next, j.deadline);
  return next;
}

void PrefillEnd::revoke(JobId id, Job& j, JobState ending) {
  j.ending = ending;
  transitions_.move(j.state, JobState::kRevoking);
  settle_if_over(id, j);
}

void PrefillEnd::settle_if_over(JobId id, Job& j) {
  if (j.in_flight > 0) return;
  if (j.state == JobState::kRevoking)
    end(id, j, j.ending);
  else if (j.state == JobState::kSending)
    end(id, j, JobState::kDone);
}

// An orphan is erased by advance(): callers still hold on to it.
void PrefillEnd::end(JobId id, Job& j, JobState state) {
  metrics_.active -= j.state == JobState::kNone ? 0 : 1;
  transitions_.move(j.state, state);
  stop(id, j);
  (state == JobState::kDone      ? metrics_.done
   : state == JobState::kRevoked ? metrics_.revoked
   : state == JobState::kExpired ? metrics_.expired
                                 : metrics_.failed) += 1;
  if (j.orphan) return;
  ++metrics_.remembered;
  Client& c = clients_.at(j.client.instance);
  ++c.closed;
  answer(j);
  grant(c);
}

void PrefillEnd::stop(JobId id, Job& j) {
  if (!j.stopped) actions_.emplace_back(StopJob{id});
  j.stopped = true;
}

void PrefillEnd::answer(const Job& j) {
  if (j.state == JobState::kRevoked) return reply(j.client, Drained{j.order.ticket, j.order.landing});
  Answer a{.ticket = j.order.ticket, .landing = j.order.landing, .reused_pages = j.reused_pages};
  a.outcome = j.state == JobState::kDone ? Outcome::kDone : j.state == JobState::kExpired ? Outcome::kExpired : Outcome::kFailed;
  if (a.outcome == Outcome::kDone) a.checksums = j.checksums;
  reply(j.client, std::move(a));
}

// Decode asks again: it missed the answer, or notices that came with the data.
void PrefillEnd::repeat(const Job& j) {
  if (j.state == JobState::kDone)
    for (const PartLanded& part : j.parts) reply(j.client, part);
  answer(j);
}

void PrefillEnd::grant(Client& c) {
  // A decode process that never says what it has seen gets no more: what is remembered for it is bounded.
  constexpr int64_t kRemembered = 4;
  if (std::ssize(c.jobs) < kRemembered * options_.credits + options_.credits) c.granted = std::max(c.granted, c.closed + options_.credits);
  reply(c.process, Grant{c.granted});
}

void PrefillEnd::reply(Process to, Body body) { actions_.emplace_back(SendReply{{options_.self, to, 0, std::move(body)}}); }

void PrefillEnd::check_invariants() const {
  int64_t active = 0, remembered = 0, in_flight = 0;
  for (const auto& [id, j] : jobs_) {
    if (is_end(j.state)) {
      BATON_CHECK(j.in_flight == 0 && j.stopped);
      remembered += j.orphan ? 0 : 1;
    } else {
      ++active;
    }
    in_flight += j.in_flight;
  }
  BATON_CHECK(active == metrics_.active && remembered == metrics_.remembered && in_flight == metrics_.writes_in_flight);
  for (const auto& [instance, c] : clients_) BATON_CHECK(c.closed <= c.taken && c.taken <= c.granted);
}

}  // namespace baton::pd
