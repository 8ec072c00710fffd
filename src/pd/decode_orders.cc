// Decode's end: what messages do to orders.
#include <algorithm>

#include "base/check.h"
#include "pd/decode_end.h"
#include "pd/planted_bug.h"

namespace baton::pd {

void DecodeEnd::receive(const Envelope& e, Time now) {
  const auto found = std::find_if(peers_.begin(), peers_.end(), [&e](const Peer& p) { return p.process.instance == e.from.instance; });
  const bool mine = e.to == options_.self || (planted(Bug::kEpochIgnored) && e.to.instance == options_.self.instance);
  if (found == peers_.end() || !mine || e.from.epoch == 0) {
    ++metrics_.stray_messages;
    return;
  }
  Peer& p = *found;
  const size_t peer = index(p);
  if (p.process.epoch == 0 || (planted(Bug::kEpochIgnored) && e.from.epoch > p.process.epoch)) {
    p.process.epoch = e.from.epoch;
  } else if (e.from.epoch > p.process.epoch) {
    restarted(peer, e.from.epoch, now);
  } else if (e.from.epoch < p.process.epoch || p.gone) {
    ++metrics_.stray_messages;
    return;
  }
  p.heard = now;
  p.silent = false;
  std::visit(
      [&](const auto& body) {
        if constexpr (requires { handle(peer, body, e.from, now); })
          handle(peer, body, e.from, now);
        else
          ++metrics_.contradictions;  // what only decode says
      },
      e.body);
}

// A larger epoch at the same address: the process before it is gone.
void DecodeEnd::restarted(size_t peer, Epoch epoch, Time now) {
  Peer& p = peers_[peer];
  if (!p.gone) gone(p.process, now);
  p.process.epoch = epoch;
  p.gone = false;
  ++metrics_.peers_restarted;
}

void DecodeEnd::gone(Process process, Time now) {
  for (Peer& p : peers_) {
    if (p.process != process || p.gone) continue;
    p.gone = true;
    p.granted = p.opened = 0;
    p.tree.clear();
    for (OpenOrder& o : orders_)
      if (o.state != OrderState::kNone && o.process == process) lost(o, now);
  }
}

void DecodeEnd::device_failed(Time now) {
  for (OpenOrder& o : orders_) {
    if (o.state == OrderState::kNone) continue;
    if (o.state != OrderState::kQuarantined) {
      retry(o, now);
      abandon(o, OrderState::kFailed, now);
      if (o.state == OrderState::kNone) continue;
    }
    if (!planted(Bug::kMatchKeptOnFailure)) zone_.forget_match(o.landing);
  }
}

// Its last writes may still be on the way.
void DecodeEnd::lost(OpenOrder& o, Time now) {
  if (o.state == OrderState::kVerifying) return;  // everything is here
  if (o.state != OrderState::kQuarantined) {
    retry(o, now);
    abandon(o, OrderState::kFailed, now);
    if (o.state == OrderState::kNone) return;
  }
  o.release_at = std::min(o.release_at, now + options_.linger);
}

// The order that a message is about, if it is still there.
DecodeEnd::OpenOrder* DecodeEnd::find(Ticket ticket, int32_t landing, Process from) {
  if (landing >= 0 && landing < std::ssize(orders_)) {
    OpenOrder& o = orders_[static_cast<size_t>(landing)];
    const bool same_ticket = o.ticket == ticket || planted(Bug::kForeignTicketAccepted);
    const bool same_process = o.process == from || planted(Bug::kEpochIgnored);
    if (o.state != OrderState::kNone && same_ticket && same_process) return &o;
  }
  ++metrics_.stray_messages;
  return nullptr;
}

void DecodeEnd::handle(size_t peer, const Grant& m, Process, Time) { peers_[peer].granted = std::max(peers_[peer].granted, m.total); }

void DecodeEnd::handle(size_t, const PartLanded& m, Process from, Time now) {
  OpenOrder* o = find(m.ticket, m.landing, from);
  if (o == nullptr || (o->state != OrderState::kOpen && o->state != OrderState::kReceiving)) return;
  constexpr int32_t kMostParts = 1 << 20;
  if (m.part < 0 || m.part >= kMostParts) {
    ++metrics_.contradictions;
    return;
  }
  const auto part = static_cast<size_t>(m.part);
  if (o->arrived.size() <= part) {
    o->arrived.resize(part + 1);
    o->parts.resize(part + 1);
  }
  if (o->state == OrderState::kOpen) transitions_.move(o->state, OrderState::kReceiving);
  if (!o->arrived[part] || planted(Bug::kPartCountedTwice)) ++o->arrived_count;
  o->arrived[part] = true;
  o->parts[part] = m.range;
  try_verify(*o, now);
}

void DecodeEnd::handle(size_t, const Answer& m, Process from, Time now) {
  OpenOrder* o = find(m.ticket, m.landing, from);
  if (o == nullptr || o->state == OrderState::kVerifying) return;
  if (o->state == OrderState::kQuarantined) return settle(*o, o->ending);
  Peer& p = peers_[o->peer];
  if (m.outcome == Outcome::kDone) {
    if (o->answer.has_value()) return;
    o->answer = m;
    p.tree.correct(std::max(0, o->believed_pages - m.reused_pages));
    return try_verify(*o, now);
  }
  p.tree.forget(std::span(o->keys).subspan(static_cast<size_t>(std::min<int64_t>(o->believed_pages, std::ssize(o->keys)))));
  retry(*o, now);
  settle(*o, m.outcome == Outcome::kExpired ? OrderState::kExpired : OrderState::kFailed);
}

void DecodeEnd::handle(size_t, const Drained& m, Process from, Time) {
  OpenOrder* o = find(m.ticket, m.landing, from);
  if (o != nullptr && o->state == OrderState::kQuarantined) settle(*o, o->ending);
}

// The answer says how many parts there are, the parts what they bring. Together they make up what was ordered, each thing once.
bool DecodeEnd::complete(const OpenOrder& o) const {
  std::vector<bool> there(o.landing.pages.size());
  int32_t slots = 0;
  for (const PartRange& r : o.parts) {
    slots += r.slot ? 1 : 0;
    if (r.first_page < 0 || r.pages < 0 || int64_t{r.first_page} + r.pages > std::ssize(there)) return false;
    for (int32_t i = r.first_page; i < r.first_page + r.pages; ++i) {
      if (i < o.landing.matched_pages || there[static_cast<size_t>(i)]) return false;
      there[static_cast<size_t>(i)] = true;
    }
  }
  return slots == 1 && std::count(there.begin(), there.end(), true) == std::ssize(there) - o.landing.matched_pages;
}

void DecodeEnd::try_verify(OpenOrder& o, Time now) {
  if (!o.answer.has_value() || o.arrived_count < std::ssize(o.answer->checksums)) return;
  if (o.arrived_count > std::ssize(o.answer->checksums) || !complete(o)) {
    ++metrics_.contradictions;
    retry(o, now);
    return settle(o, OrderState::kFailed);
  }
  transitions_.move(o.state, OrderState::kVerifying);
  actions_.emplace_back(Verify{o.ticket, o.landing.slot, o.parts, o.landing.pages});
}

void DecodeEnd::verified(Ticket ticket, int32_t landing, std::span<const uint64_t> checksums, Time now) {
  OpenOrder& o = orders_[static_cast<size_t>(landing)];
  BATON_CHECK(o.state == OrderState::kVerifying && o.ticket == ticket);
  if (o.request == kNoRequest) return settle(o, o.ending);  // nobody waits for it any more
  if (!std::ranges::equal(checksums, o.answer->checksums)) {
    ++metrics_.mismatches;
    retry(o, now);
    return settle(o, OrderState::kFailed);
  }
  zone_.commit(o.asked.salt, *o.asked.tokens, o.asked.cache, o.landing);
  const auto request = requests_.find(o.request);
  const Time waited = o.opened - request->second.since;
  requests_.erase(request);
  ++metrics_.landed;
  metrics_.hand_over_ns += now - o.opened;
  actions_.emplace_back(Landed{o.request, std::move(o.landing), o.answer->reused_pages, waited, !planted(Bug::kFoldCountKept)});
  o.landing = {};
  settle(o, OrderState::kDone);
}

// The order is over, and its memory free, unless that has found its use.
void DecodeEnd::settle(OpenOrder& o, OrderState end) {
  Peer& p = peers_[o.peer];
  if (o.state == OrderState::kQuarantined) {
    --metrics_.quarantined;
    metrics_.quarantined_pages -= o.landing.own_pages();
    --p.quarantined;
  } else {
    --metrics_.open;
    --p.open;
  }
  p.owed_pages -= o.owed_pages;
  transitions_.move(o.state, end);
  if (o.landing.slot >= 0) zone_.release(o.landing);
  o = {};
}

void DecodeEnd::send_order(OpenOrder& o, Time now) {
  o.next_send = now + options_.resend;
  const Time left = o.asked.deadline == kNever ? options_.order_limit : o.asked.deadline - now;
  const auto own = o.landing.pages.begin() + o.landing.matched_pages;
  send(peers_[o.peer], o.process,
       Order{.ticket = o.ticket,
             .landing = o.landing.slot,
             .salt = o.asked.salt,
             .cache = o.asked.cache,
             .tokens = o.asked.tokens,
             .matched_pages = o.landing.matched_pages,
             .pages = {own, o.landing.pages.end()},
             .slot = o.landing.slot,
             .within = std::min(left, o.opened + options_.order_limit - now)});
}

void DecodeEnd::send_cancel(OpenOrder& o, Time now) {
  o.next_send = now + options_.resend;
  const Process to = planted(Bug::kEpochIgnored) ? peers_[o.peer].process : o.process;
  send(peers_[o.peer], to, Cancel{o.ticket, o.landing.slot});
}

void DecodeEnd::send(const Peer& p, Process to, Body body) {
  actions_.emplace_back(Send{{options_.self, to, low_water(p), std::move(body)}});
}

Ticket DecodeEnd::low_water(const Peer& p) const {
  Ticket lowest = next_ticket_;
  const size_t peer = index(p);
  for (const OpenOrder& o : orders_)
    if (o.state != OrderState::kNone && o.peer == peer) lowest = std::min(lowest, o.ticket);
  return lowest;
}

}  // namespace baton::pd
