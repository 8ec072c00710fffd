#include "transfer/nixl_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <random>
#include <thread>

#include "base/log.h"
#include "transfer/nixl_notice.h"

namespace baton::transfer {
namespace {

using Progress = NixlAgent::Progress;
using namespace std::chrono_literals;

constexpr int64_t kHalf = kDoormatBytes / 2;
constexpr auto kActiveFor = 100ms;  // more is likely to come so soon after something came

// Never given back, since others may still write to it when the one that it was for has left.
std::byte* new_doormat() {
  static std::mutex mutex;
  static auto* all = new std::deque<std::array<std::byte, kDoormatBytes>>;
  const std::lock_guard lock(mutex);
  return all->emplace_back().data();
}

std::string unique_name(Agent self) {
  std::random_device random;
  return fmt::format("baton-{}-{}-{:08x}{:08x}{:08x}", self.instance, self.epoch, random(), random(), random());
}

uint64_t address_of(const std::byte* p) { return reinterpret_cast<uint64_t>(p); }
int64_t whole(const Region& region) { return region.object_bytes * region.objects; }

NixlAgent::Place place_of(int32_t device) {
  if (device < 0) return {};
  return {kNixlDeviceMemory, static_cast<uint64_t>(device)};
}

}  // namespace

NixlWorker::NixlWorker(const NixlFunctions& library, const NixlOptions& options, Agent self, const Memory& memory, NixlMail& mail,
                       std::function<void()> notify)
    : library_(library), options_(options), self_(self), memory_(memory), mail_(mail), notify_(std::move(notify)), doormat_(new_doormat()),
      last_active_(TransferClock::now()) {}

void NixlWorker::run() {
  const Status entered = enter();
  {
    const std::lock_guard lock(mail_.mutex);
    mail_.entered = entered;
    mail_.to_owner.notify_all();
  }
  while (entered.ok()) {
    std::deque<NixlOrder> orders;
    {
      std::unique_lock lock(mail_.mutex);
      mail_.to_worker.wait_for(lock, busy(TransferClock::now()) ? options_.busy_poll : options_.idle_poll,
                               [this] { return mail_.stop || !mail_.orders.empty(); });
      if (mail_.stop) break;
      orders.swap(mail_.orders);
    }
    const Time now = TransferClock::now();
    if (!orders.empty()) last_active_ = now;
    for (NixlOrder& order : orders) std::visit([&](auto& o) { carry_out(o, now); }, order);
    poll_parts(now);
    poll_greetings(now);
    poll_notices();
    publish();
  }
  leave();
}

bool NixlWorker::busy(Time now) const {
  return !under_way_.empty() || now - last_active_ < kActiveFor ||
         std::ranges::any_of(peers_, [](const auto& p) { return p.second.greeting != nullptr; });
}

Status NixlWorker::enter() {
  BATON_ASSIGN(agent_, NixlAgent::make(library_, unique_name(self_)));
  std::vector<NixlAgent::Piece> own;
  for (const Region* r : {&memory_.pages, &memory_.slots})
    if (whole(*r) > 0) own.push_back({address_of(r->data), whole(*r)});
  if (!own.empty()) BATON_TRY(agent_->add_memory(place_of(options_.device), own));
  const NixlAgent::Piece doormat[] = {{address_of(doormat_), kDoormatBytes}}, half[] = {{address_of(doormat_) + kHalf, kHalf}};
  BATON_TRY(agent_->add_memory({}, doormat));
  BATON_ASSIGN(own_doormat_, agent_->prepare({}, {}, half));
  Introduction own_introduction{
      .transport = kNixlTransport, .agent = self_, .memory = memory_, .device = options_.device, .doormat = address_of(doormat_)};
  BATON_ASSIGN(own_introduction.address, agent_->address());
  const std::lock_guard lock(mail_.mutex);
  mail_.introduction = encode(own_introduction);
  return {};
}

Status NixlWorker::connect(Peer& peer) {
  const Introduction& other = peer.introduction;
  BATON_ASSIGN(peer.name, agent_->add_peer(other.address));
  std::vector<NixlAgent::Piece> own, remote;
  for (int32_t i = 0; i < memory_.pages.objects; ++i)
    for (const Slice& s : peer.route.page) own.push_back({address_of(object(memory_.pages, i) + s.from), s.bytes});
  for (int32_t i = 0; i < memory_.slots.objects; ++i)
    for (const auto& [s, part] : peer.route.slot) own.push_back({address_of(object(memory_.slots, i) + s.from), s.bytes});
  for (int32_t i = 0; i < other.memory.pages.objects; ++i)
    for (const Slice& s : peer.route.page) remote.push_back({address_of(object(other.memory.pages, i) + s.to), s.bytes});
  for (int32_t i = 0; i < other.memory.slots.objects; ++i)
    for (const auto& [s, part] : peer.route.slot) remote.push_back({address_of(object(other.memory.slots, i) + s.to), s.bytes});
  const NixlAgent::Piece doormat[] = {{other.doormat, kHalf}};
  BATON_ASSIGN(peer.doormat, agent_->prepare(peer.name, {}, doormat));
  if (own.empty() || remote.empty()) return {};
  BATON_ASSIGN(peer.own, agent_->prepare({}, place_of(options_.device), own));
  BATON_ASSIGN(peer.remote, agent_->prepare(peer.name, place_of(other.device), remote));
  return {};
}

void NixlWorker::disconnect(Peer& peer, Failure why) {
  for (auto u = under_way_.begin(); u != under_way_.end();) {
    if (u->peer != &peer) {
      ++u;
      continue;
    }
    const bool done = u->request != nullptr && !u->damage && agent_->status(u->request) == Progress::kDone;
    release(*u);
    over(*u, done, why);
    u = under_way_.erase(u);
  }
  if (peer.greeting != nullptr && !agent_->release_request(peer.greeting)) ++metrics_.left_behind;
  peer.greeting = nullptr;
  for (NixlHandle* list : {&peer.own, &peer.remote, &peer.doormat}) agent_->release_list(std::exchange(*list, nullptr));
  if (!peer.name.empty()) agent_->drop_peer(std::exchange(peer.name, {}));
}

void NixlWorker::forget(Agent agent) {
  const auto found = peers_.find(agent);
  if (found == peers_.end()) return;
  disconnect(found->second, Failure::kGone);
  if (!found->second.waiting.empty())
    met(found->second, Error{Error::Kind::kIo, fmt::format("instance {} was parted with while it was being met", agent.instance)});
  peers_.erase(found);
  changes_.emplace_back(agent);
}

void NixlWorker::carry_out(GonePeer& order, Time) { forget(order.agent); }

void NixlWorker::carry_out(NewPeer& order, Time now) {
  const Agent agent = order.introduction.agent;
  const auto [found, fresh] = peers_.try_emplace(agent);
  Peer& peer = found->second;
  if (fresh) {
    peer.introduction = std::move(order.introduction);
    peer.route = route(memory_, peer.introduction.memory);
  }
  peer.waiting.push_back(std::move(order.outcome));
  if (peer.greeting != nullptr) return;
  if (!peer.name.empty()) return met(peer, {});
  Status connected = connect(peer);
  if (connected.ok()) {
    peer.greeting_ends = now + options_.meet_limit;
    const int first[] = {0};
    const Progress p =
        agent_->write(own_doormat_, first, peer.doormat, first, encode(NixlNotice{.from = self_, .greeting = true}), peer.greeting);
    if (p != Progress::kFailed) return;  // it is looked at again at once
    connected = Error{Error::Kind::kIo, "the first write to it failed"};
  }
  disconnect(peer, Failure::kRefused);
  met(peer, connected);
}

void NixlWorker::poll_greetings(Time now) {
  for (auto& [agent, peer] : peers_) {
    if (peer.greeting == nullptr) continue;
    const Progress p = agent_->status(peer.greeting);
    if (p == Progress::kDone) {
      agent_->release_request(std::exchange(peer.greeting, nullptr));
      met(peer, {});
    } else if (p == Progress::kFailed || now > peer.greeting_ends) {
      disconnect(peer, Failure::kRefused);
      met(peer, Error{Error::Kind::kIo,
                      p == Progress::kFailed ? "the first write to it failed" : "it does not answer; it may be stopped, or have ended"});
    }
  }
  std::erase_if(peers_, [](const auto& p) { return !p.second.met && p.second.name.empty(); });
}

// Everybody who waits for it hears.
void NixlWorker::met(Peer& peer, Status how) {
  const Agent agent = peer.introduction.agent;
  if (how.ok()) {
    ++metrics_.meetings;
    peer.met = true;
    changes_.emplace_back(peer.introduction);
    std::vector<Agent> earlier;
    for (const auto& [other, unused] : peers_)
      if (other.instance == agent.instance && other.epoch < agent.epoch) earlier.push_back(other);
    for (const Agent other : earlier) forget(other);
  } else {
    ++metrics_.meetings_failed;
    how = Error{how.error().kind,
                fmt::format("instance {} (epoch {}) cannot be reached: {}", agent.instance, agent.epoch, how.error().message)};
  }
  for (Outcome& outcome : peer.waiting) outcomes_.emplace_back(std::move(outcome), how);
  peer.waiting.clear();
}

void NixlWorker::carry_out(NewPart& order, Time now) {
  Under& u = under_way_.emplace_back();
  u.part = std::move(order.part);
  u.posted = order.posted;
  u.ends = now + options_.part_limit;
  const auto peer = peers_.find(u.part.to);
  if (peer == peers_.end()) {
    over(u, false, Failure::kGone);
    under_way_.pop_back();
    return;
  }
  u.peer = &peer->second;
  Status connected;
  if (u.peer->name.empty()) connected = connect(*u.peer);
  if (!connected.ok() || start(u) == Progress::kFailed) disconnect(*u.peer, Failure::kRefused);
}

NixlAgent::Progress NixlWorker::start(Under& u) {
  const Route& r = u.peer->route;
  std::vector<int> own, remote;
  for (size_t i = 0; i < u.part.from_pages.size(); ++i)
    for (size_t s = 0; s < r.page.size(); ++s) {
      own.push_back(static_cast<int>(static_cast<size_t>(u.part.from_pages[i]) * r.page.size() + s));
      remote.push_back(static_cast<int>(static_cast<size_t>(u.part.to_pages[i]) * r.page.size() + s));
    }
  if (u.part.from_slot >= 0) {
    const auto base = [&r](const Memory& m, int32_t slot) {
      return static_cast<size_t>(m.pages.objects) * r.page.size() + static_cast<size_t>(slot) * r.slot.size();
    };
    for (size_t s = 0; s < r.slot.size(); ++s) {
      if ((r.slot[s].second & u.part.slot_parts) == 0) continue;
      own.push_back(static_cast<int>(base(memory_, u.part.from_slot) + s));
      remote.push_back(static_cast<int>(base(u.peer->introduction.memory, u.part.to_slot) + s));
    }
  }
  const std::vector<Extent> extents = sent_extents(memory_, r, u.part);
  u.checksum = options_.checksum(extents);
  u.notice = encode(NixlNotice{.from = self_, .checksum = u.checksum, .bytes = u.part.notice});
  if (own.empty()) {
    const bool sent = agent_->notify(u.peer->name, u.notice).ok();
    if (!sent) return Progress::kFailed;
    over(u, true);
    under_way_.pop_back();
    return Progress::kDone;
  }
  u.damage = options_.damage_every > 0 && ++started_ % options_.damage_every == 0;
  if (u.damage) {
    const int64_t bytes = std::min<int64_t>(kHalf, extents.front().bytes);
    for (int64_t i = 0; i < bytes; ++i) doormat_[kHalf + i] = options_.device < 0 ? ~extents.front().data[i] : std::byte{0xDA};
  }
  return agent_->write(u.peer->own, own, u.peer->remote, remote, u.damage ? std::span<const std::byte>() : u.notice, u.request);
}

// Over the first bytes of the first page, or of the slot. The notice that was kept back follows.
NixlAgent::Progress NixlWorker::start_damage(Under& u) {
  const Route& r = u.peer->route;
  const Memory& theirs = u.peer->introduction.memory;
  const bool page = !u.part.to_pages.empty() && !r.page.empty();
  Slice first;
  if (page)
    first = r.page.front();
  else
    first = std::ranges::find_if(r.slot, [&u](const auto& s) { return (s.second & u.part.slot_parts) != 0; })->first;
  std::byte* const target = (page ? object(theirs.pages, u.part.to_pages.front()) : object(theirs.slots, u.part.to_slot)) + first.to;
  const int64_t bytes = std::min(kHalf, first.bytes);
  agent_->release_request(std::exchange(u.request, nullptr));
  u.damage = false;
  const NixlAgent::Piece wrong[] = {{address_of(doormat_) + kHalf, bytes}}, there[] = {{address_of(target), bytes}};
  Result<NixlHandle> own = agent_->prepare({}, {}, wrong),
                     remote = agent_->prepare(u.peer->name, place_of(u.peer->introduction.device), there);
  if (own.ok()) u.wrong_own = *own;
  if (remote.ok()) u.wrong_remote = *remote;
  if (!own.ok() || !remote.ok()) return Progress::kFailed;
  const int index[] = {0};
  return agent_->write(u.wrong_own, index, u.wrong_remote, index, u.notice, u.request);
}

void NixlWorker::poll_parts(Time now) {
  for (auto u = under_way_.begin(); u != under_way_.end();) {
    Progress p = agent_->status(u->request);
    if (p == Progress::kDone && u->damage) p = start_damage(*u);
    if (p == Progress::kUnderWay && now <= u->ends) {
      ++u;
    } else if (p == Progress::kDone) {
      release(*u);
      over(*u, true);
      u = under_way_.erase(u);
    } else {
      disconnect(*u->peer, p == Progress::kFailed ? Failure::kRefused : Failure::kTooLong);
      u = under_way_.begin();
    }
  }
}

void NixlWorker::release(Under& u) {
  if (!agent_->release_request(std::exchange(u.request, nullptr))) ++metrics_.left_behind;
  agent_->release_list(std::exchange(u.wrong_own, nullptr));
  agent_->release_list(std::exchange(u.wrong_remote, nullptr));
}

void NixlWorker::over(const Under& u, bool ok, Failure why) {
  ++metrics_.parts;
  completions_.push_back({.tag = u.part.tag, .ok = ok, .checksum = ok ? u.checksum : 0});
  if (!ok) {
    ++metrics_.failed;
    ++metrics_.failures[static_cast<size_t>(why)];
    return;
  }
  const Route& r = u.peer->route;
  for (const Slice& s : r.page) metrics_.page_bytes += s.bytes * std::ssize(u.part.from_pages);
  if (u.part.from_slot >= 0)
    for (const auto& [s, of] : r.slot)
      if ((of & u.part.slot_parts) != 0) metrics_.slot_bytes += s.bytes;
  const int64_t took = std::chrono::nanoseconds(TransferClock::now() - u.posted).count();
  metrics_.took_ns += took;
  metrics_.slowest_ns = std::max(metrics_.slowest_ns, took);
}

void NixlWorker::poll_notices() {
  agent_->poll([this](std::span<const std::byte> bytes) {
    const std::optional<NixlNotice> notice = decode_nixl_notice(bytes);
    if (!notice) {
      if (metrics_.garbled++ == 0) log_warning("instance {}: a notice of {} bytes came that is none of ours", self_.instance, bytes.size());
      return;
    }
    last_active_ = TransferClock::now();
    if (notice->greeting) return;
    ++metrics_.arrived;
    arrivals_.push_back({notice->from, notice->checksum, {notice->bytes.begin(), notice->bytes.end()}});
  });
}

void NixlWorker::publish() {
  const bool news = !arrivals_.empty() || !completions_.empty();
  {
    const std::lock_guard lock(mail_.mutex);
    if (mail_.stop) return;
    for (const auto& change : changes_)
      if (const Agent* gone = std::get_if<Agent>(&change); gone != nullptr)
        mail_.peers.erase(*gone);
      else
        mail_.peers[std::get<Introduction>(change).agent] = std::get<Introduction>(change);
    for (auto& [outcome, how] : outcomes_) *outcome = std::move(how);
    if (!outcomes_.empty()) mail_.to_owner.notify_all();
    const int64_t waiting = mail_.metrics.waiting - std::ssize(completions_);
    mail_.metrics = metrics_;
    mail_.metrics.waiting = waiting;
    std::ranges::move(arrivals_, std::back_inserter(mail_.arrivals));
    std::ranges::move(completions_, std::back_inserter(mail_.completions));
  }
  changes_.clear();
  outcomes_.clear();
  arrivals_.clear();
  completions_.clear();
  if (news) notify_();
}

void NixlWorker::leave() {
  if (agent_ == nullptr) return;
  // What is under way ends, or is left behind: an agent that still has something to do never comes to an end.
  const Time ends = TransferClock::now() + options_.leave_limit;
  while (!under_way_.empty() && TransferClock::now() < ends) {
    poll_parts(TransferClock::now());
    poll_notices();
    if (!under_way_.empty()) std::this_thread::sleep_for(options_.busy_poll);
  }
  for (auto& [agent, peer] : peers_) disconnect(peer, Failure::kGone);
  agent_->release_list(own_doormat_);
  if (metrics_.left_behind > 0) {
    log_warning("instance {} leaves {} writes behind that did not end in time", self_.instance, metrics_.left_behind);
    NixlAgent::abandon(std::move(agent_));
  }
  agent_ = nullptr;
  const std::lock_guard lock(mail_.mutex);
  mail_.metrics = metrics_;
}

}  // namespace baton::transfer
