#include "fleet/peers.h"

#include <algorithm>
#include <utility>

namespace baton::fleet {

Peer* Peers::find(const std::string& url) {
  for (auto& [id, p] : peers_)
    if (p.url == url) return &p;
  return nullptr;
}

// Whoever has been silent for longest makes room, if that is long.
Peer* Peers::add(const std::string& url, TimeMs now) {
  if (peers_.size() >= kMostPeers) {
    const auto oldest = std::ranges::min_element(peers_, {}, [](const auto& p) { return p.second.heard; });
    if (oldest->second.fixed || oldest->second.calling || now - oldest->second.heard < kForgotten) return nullptr;
    peers_.erase(oldest);
  }
  Peer& p = peers_[next_++];
  p.url = url;
  p.heard = p.next_call = now;
  return &p;
}

void Peers::list(const std::string& url, bool fixed, TimeMs now) {
  Peer* p = find(url);
  if (p == nullptr) p = add(url, now);
  if (p == nullptr) return;
  p->fixed = p->fixed || fixed;
  p->listed = now;
}

bool Peers::introduced(pd::Process process, const std::string& url, TimeMs now) {
  for (auto& [id, p] : peers_)
    if (p.met && p.process.instance == process.instance && p.process.epoch > process.epoch) return false;
  // One process an address, one address a process.
  for (auto& [id, p] : peers_)
    if (p.met && p.process != process && (p.url == url || p.process.instance == process.instance)) lose(p);
  std::erase_if(peers_, [&](const auto& p) { return p.second.url != url && p.second.process.instance == process.instance; });
  Peer* p = find(url);
  if (p == nullptr) p = add(url, now);
  if (p == nullptr) return false;
  p->process = process;
  p->met = p->ready = true;
  p->why.clear();
  p->heard = now;
  p->refused = -1;
  return true;
}

void Peers::queue(pd::Process to, std::span<const std::byte> message) {
  for (auto& [id, p] : peers_) {
    // Epoch 0: whoever is there.
    if (!p.met || p.process.instance != to.instance || (to.epoch != 0 && to.epoch != p.process.epoch)) continue;
    if (p.queue.size() >= kMostQueued || p.queued_bytes + message.size() > kMostQueuedBytes) {
      ++p.dropped;
      return;
    }
    p.queue.emplace_back(message.begin(), message.end());
    p.queued_bytes += message.size();
    return;
  }
  ++stray_;
}

std::vector<Peers::Call> Peers::calls(TimeMs now) {
  std::vector<Call> out;
  // What no router names any more, and was not met or has gone.
  std::erase_if(peers_, [&](const auto& p) { return !p.second.met && !p.second.calling && !is_listed(p.second, now); });
  for (auto& [id, p] : peers_) {
    const bool waits = p.met && !p.queue.empty() && p.refused < 0;
    if (p.calling || (now < p.next_call && !waits)) continue;
    p.calling = true;
    p.called = p.process;
    Call call{.peer = id, .meet = !p.met, .to = p.process};
    size_t bytes = 0;
    while (p.met && !p.queue.empty() && call.messages.size() < kMostMessages &&
           (bytes == 0 || bytes + p.queue.front().size() <= kMostBatchBytes)) {
      bytes += p.queue.front().size();
      call.messages.push_back(std::move(p.queue.front()));
      p.queue.pop_front();
    }
    p.queued_bytes -= bytes;
    p.sent += std::ssize(call.messages);
    out.push_back(std::move(call));
  }
  return out;
}

// The process that was met is gone. Decode's list keeps the address.
void Peers::lose(Peer& p) {
  if (!p.met) return;
  gone_.push_back(p.process);
  p.met = p.ready = false;
  p.dropped += std::ssize(p.queue);
  p.queue.clear();
  p.queued_bytes = 0;
}

void Peers::answered(PeerId peer, const Reply& reply, TimeMs now) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  Peer& p = found->second;
  p.calling = false;
  if (p.process != p.called) return;  // another has introduced itself meanwhile
  p.heard = now;
  p.refused = -1;
  p.next_call = now + kBeat;
  p.why.clear();
  if (p.met && reply.self != p.process) lose(p);
  if (!reply.known) {  // it has forgotten, or is another: it is met anew
    p.met = p.ready = false;
    p.next_call = now;
    return;
  }
  p.process = reply.self;
  p.met = true;
  p.ready = reply.ready;
}

void Peers::failed(PeerId peer, bool refused, std::string why, TimeMs now, TimeMs pause) {
  const auto found = peers_.find(peer);
  if (found == peers_.end()) return;
  Peer& p = found->second;
  p.calling = false;
  if (p.process != p.called) return;
  p.why = std::move(why);
  ++p.failed_calls;
  p.next_call = now + pause;
  if (!refused) {
    p.refused = -1;
    p.next_call = std::max(p.next_call, now + kAgain);
    return;
  }
  if (p.refused < 0) p.refused = now;
  if (now - p.refused >= kRefusals) lose(p);
}

bool Peers::knows(pd::Process process) const {
  return std::ranges::any_of(peers_, [&](const auto& p) { return p.second.met && p.second.process == process; });
}

std::vector<pd::Process> Peers::take_gone() { return std::exchange(gone_, {}); }

std::vector<pd::InstanceId> Peers::prefills(TimeMs now) const {
  std::vector<pd::InstanceId> out;
  for (const auto& [id, p] : peers_)
    if (p.met && p.ready && is_listed(p, now)) out.push_back(p.process.instance);
  return out;
}

}  // namespace baton::fleet
