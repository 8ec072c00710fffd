#include "pd/decode_end.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "pd/planted_bug.h"

namespace baton::pd {

DecodeEnd::DecodeEnd(const DecodeOptions& options, LandingZone& zone)
    : options_(options), zone_(zone), orders_(static_cast<size_t>(options.slots)) {
  BATON_CHECK(options.self.epoch > 0 && options.slots > 0);
}

void DecodeEnd::add_prefill(InstanceId instance) {
  peers_.push_back({.process = {instance, 0}, .tree = ApproximateTree(options_.remembered_pages)});
}

void DecodeEnd::set_prefills(std::span<const InstanceId> instances) {
  for (Peer& p : peers_) p.closed = std::ranges::find(instances, p.process.instance) == instances.end();
  for (const InstanceId i : instances) {
    if (std::ranges::any_of(peers_, [i](const Peer& p) { return p.process.instance == i; })) continue;
    const auto unused = std::ranges::find_if(peers_, [](const Peer& p) { return p.closed && p.open + p.quarantined == 0; });
    Peer fresh{.process = {i, 0}, .tree = ApproximateTree(options_.remembered_pages)};
    if (peers_.size() < kMostPeers)
      peers_.push_back(std::move(fresh));
    else if (unused != peers_.end())
      *unused = std::move(fresh);
  }
}

Status DecodeEnd::submit(RequestKey key, Request request, Time now) {
  BATON_CHECK_MSG(key != kNoRequest && !requests_.contains(key), "request {} was submitted twice", key);
  BATON_CHECK(request.tokens != nullptr && !request.tokens->empty());
  if (std::ssize(queue_) >= options_.most_waiting) {
    ++metrics_.refused;
    return Error{Error::Kind::kExhausted,
                 fmt::format("{} requests wait for prefill already, as many as may; try again later", queue_.size())};
  }
  std::vector<PageKey> keys = request.cache ? page_keys(request.salt, *request.tokens) : std::vector<PageKey>();
  requests_.emplace(key, Waiting{.request = std::move(request), .keys = std::move(keys), .since = now});
  queue_.push_back(key);
  ++metrics_.submitted;
  metrics_.waiting = std::ssize(queue_);
  return {};
}

void DecodeEnd::cancel(RequestKey key, Time now) {
  const auto found = requests_.find(key);
  if (found == requests_.end()) return;
  if (const int32_t at = found->second.landing; at >= 0) abandon(orders_[static_cast<size_t>(at)], OrderState::kRevoked, now);
  end_request(key, EndReason::kCancelled);
}

void DecodeEnd::end_request(RequestKey key, EndReason reason) {
  const auto found = requests_.find(key);
  BATON_CHECK(found != requests_.end());
  if (found->second.landing < 0) std::erase(queue_, key);
  requests_.erase(found);
  (reason == EndReason::kCancelled ? metrics_.cancelled : reason == EndReason::kDeadline ? metrics_.expired : metrics_.failed) += 1;
  metrics_.waiting = std::ssize(queue_);
  actions_.emplace_back(Ended{key, reason});
}

// The order is not wanted any more. Whoever waits for its request is told elsewhere.
void DecodeEnd::abandon(OpenOrder& o, OrderState ending, Time now) {
  o.request = kNoRequest;
  o.ending = ending;
  if (o.state == OrderState::kVerifying) return;  // no write is under way; the check is short
  transitions_.move(o.state, OrderState::kQuarantined);
  Peer& p = peers_[o.peer];
  --metrics_.open;
  ++metrics_.quarantined;
  metrics_.quarantined_pages += o.landing.own_pages();
  --p.open;
  ++p.quarantined;
  p.tree.forget(std::span(o.keys).subspan(static_cast<size_t>(std::min<int64_t>(o.believed_pages, std::ssize(o.keys)))));
  send_cancel(o, now);
  if (planted(Bug::kFreedOnCancel)) settle(o, o.ending);
}

// The order has failed and its request has not: it goes back to the front of the queue.
void DecodeEnd::retry(OpenOrder& o, Time) {
  const RequestKey key = o.request;
  o.request = kNoRequest;
  if (key == kNoRequest) return;
  Waiting& w = requests_.at(key);
  if (w.orders >= options_.most_orders) return end_request(key, EndReason::kFailed);
  w.landing = -1;
  queue_.push_front(key);
  ++metrics_.retried;
  metrics_.waiting = std::ssize(queue_);
}

void DecodeEnd::advance(Time now, int32_t keep_pages, bool may_order) {
  if (std::ranges::any_of(peers_, is_there))
    alone_since_ = kNever;
  else if (alone_since_ == kNever)
    alone_since_ = now;
  expire_waiting(now);
  for (OpenOrder& o : orders_)
    if (o.state != OrderState::kNone) advance_order(o, now);
  for (Peer& p : peers_)
    if (now >= p.next_ping && wants_ping(p)) {
      p.next_ping = now + options_.resend;
      send(p, {p.process.instance, 0}, Ping{});
    }
  if (may_order) open_orders(now, keep_pages);
}

void DecodeEnd::expire_waiting(Time now) {
  for (size_t i = 0; i < queue_.size();) {
    const Waiting& w = requests_.at(queue_[i]);
    if (w.request.deadline <= now)
      end_request(queue_[i], EndReason::kDeadline);
    else if (now - w.since >= options_.most_wait || now >= alone_until(w))
      end_request(queue_[i], EndReason::kFailed);
    else
      ++i;
  }
}

// When it has waited for long enough for anybody to order from.
Time DecodeEnd::alone_until(const Waiting& w) const {
  if (alone_since_ == kNever || options_.most_alone == kNever) return kNever;
  return std::max(alone_since_, w.since) + options_.most_alone;
}

void DecodeEnd::advance_order(OpenOrder& o, Time now) {
  if (o.state == OrderState::kQuarantined) {
    if (now >= o.release_at) return settle(o, o.ending);
    if (now >= o.next_send && o.release_at == kNever) send_cancel(o, now);
    return;
  }
  if (o.request != kNoRequest && o.asked.deadline <= now) {
    const RequestKey key = o.request;
    abandon(o, OrderState::kExpired, now);
    return end_request(key, EndReason::kDeadline);
  }
  if (o.state == OrderState::kVerifying) return;
  Peer& p = peers_[o.peer];
  const bool silent = now - std::max(o.opened, p.heard) >= options_.patience;
  if (silent || now - o.opened >= options_.order_limit) {
    p.silent = p.silent || silent;
    retry(o, now);
    return abandon(o, OrderState::kExpired, now);
  }
  if (now >= o.next_send) {
    ++metrics_.repeated_orders;
    send_order(o, now);
  }
}

bool DecodeEnd::wants_ping(const Peer& p) const {
  if (p.closed && p.open + p.quarantined == 0) return false;
  if (p.process.epoch == 0 || p.gone || p.silent) return true;
  return !queue_.empty() && p.granted <= p.opened;
}

Time DecodeEnd::next_wake() const {
  Time next = kNever;
  const auto at = [&next](Time t) { next = std::min(next, t); };
  const auto after = [&next](Time since, Time wait) { next = std::min(next, since + wait); };
  for (const RequestKey key : queue_) {
    const Waiting& w = requests_.at(key);
    at(w.request.deadline);
    after(w.since, options_.most_wait);
    at(alone_until(w));
  }
  for (const OpenOrder& o : orders_) {
    if (o.state == OrderState::kNone) continue;
    if (o.state == OrderState::kQuarantined) {
      at(o.release_at == kNever ? o.next_send : o.release_at);
      continue;
    }
    if (o.request != kNoRequest) at(o.asked.deadline);
    if (o.state == OrderState::kVerifying) continue;
    at(o.next_send);
    after(std::max(o.opened, peers_[o.peer].heard), options_.patience);
    after(o.opened, options_.order_limit);
  }
  for (const Peer& p : peers_)
    if (wants_ping(p)) at(p.next_ping);
  return next;
}

void DecodeEnd::open_orders(Time now, int32_t keep_pages) {
  while (!queue_.empty()) {
    const RequestKey key = queue_.front();
    Waiting& w = requests_.at(key);
    int32_t believed = 0;
    Peer* p = choose(w, believed);
    if (p == nullptr || !open_order(key, w, *p, believed, now, keep_pages)) return;
  }
}

// The least to do until this prompt is computed: what it lacks there, and what is owed to others before it.
DecodeEnd::Peer* DecodeEnd::choose(const Waiting& w, int32_t& believed) {
  Peer* best = nullptr;
  int64_t least = 0;
  const auto pages = (std::ssize(*w.request.tokens) + cache::kPageUnits - 1) / cache::kPageUnits;
  for (Peer& p : peers_) {
    if (!is_there(p) || p.granted <= p.opened || p.quarantined >= options_.most_quarantined) continue;
    const int32_t has = p.tree.match(w.keys);
    const int64_t cost = pages - has + p.owed_pages;
    if (best != nullptr && cost >= least) continue;
    best = &p;
    least = cost;
    believed = has;
  }
  return best;
}

bool DecodeEnd::open_order(RequestKey key, Waiting& w, Peer& p, int32_t believed, Time now, int32_t keep_pages) {
  Landing landing;
  if (!zone_.reserve(w.request.salt, *w.request.tokens, w.request.cache, keep_pages, landing)) return false;
  queue_.pop_front();
  w.landing = landing.slot;
  ++w.orders;
  OpenOrder& o = orders_[static_cast<size_t>(landing.slot)];
  BATON_CHECK(o.state == OrderState::kNone);
  transitions_.move(o.state, OrderState::kOpen);
  o.ticket = next_ticket_++;
  o.request = key;
  o.peer = index(p);
  o.process = p.process;
  o.asked = w.request;
  o.keys = w.keys;
  o.believed_pages = believed;
  o.owed_pages = static_cast<int32_t>(std::ssize(landing.pages)) - believed;
  o.opened = now;
  metrics_.pages_matched += landing.matched_pages;
  metrics_.pages_ordered += std::ssize(landing.pages) - landing.matched_pages;
  o.landing = std::move(landing);
  ++p.opened;
  ++p.open;
  p.owed_pages += o.owed_pages;
  p.tree.remember(o.keys);
  ++metrics_.orders;
  ++metrics_.open;
  metrics_.waiting = std::ssize(queue_);
  send_order(o, now);
  return true;
}

int32_t DecodeEnd::held_pages() const {
  int32_t n = 0;
  for (const OpenOrder& o : orders_)
    if (o.state != OrderState::kNone) n += o.landing.own_pages();
  return n;
}

int32_t DecodeEnd::held_slots() const { return static_cast<int32_t>(metrics_.open + metrics_.quarantined); }

int32_t DecodeEnd::leases() const {
  return static_cast<int32_t>(std::count_if(
      orders_.begin(), orders_.end(), [](const OpenOrder& o) { return o.state != OrderState::kNone && o.landing.node != cache::kRoot; }));
}

bool DecodeEnd::may_be_written(Ticket ticket, int32_t landing, int32_t page) const {
  const OpenOrder& o = orders_[static_cast<size_t>(landing)];
  if (o.state == OrderState::kNone || o.state == OrderState::kVerifying || o.ticket != ticket) return false;
  if (page < 0) return true;  // the slot
  const auto own = o.landing.pages.begin() + o.landing.matched_pages;
  return std::find(own, o.landing.pages.end(), page) != o.landing.pages.end();
}

void DecodeEnd::check_invariants() const {
  int64_t open = 0, quarantined = 0, pages = 0;
  std::vector<int64_t> owed(peers_.size());
  for (size_t i = 0; i < orders_.size(); ++i) {
    const OpenOrder& o = orders_[i];
    if (o.state == OrderState::kNone) continue;
    BATON_CHECK(!is_end(o.state) && o.landing.slot == static_cast<int32_t>(i));
    if (o.state == OrderState::kQuarantined) {
      ++quarantined;
      pages += o.landing.own_pages();
      BATON_CHECK(o.request == kNoRequest);
    } else {
      ++open;
    }
    owed[o.peer] += o.owed_pages;
    if (o.request != kNoRequest) BATON_CHECK(requests_.at(o.request).landing == static_cast<int32_t>(i));
  }
  BATON_CHECK(open == metrics_.open && quarantined == metrics_.quarantined && pages == metrics_.quarantined_pages);
  for (size_t i = 0; i < peers_.size(); ++i) BATON_CHECK(peers_[i].owed_pages == owed[i]);
  int64_t waiting = 0;
  for (const auto& [key, w] : requests_) waiting += w.landing < 0 ? 1 : 0;
  BATON_CHECK(waiting == std::ssize(queue_));
}

}  // namespace baton::pd
