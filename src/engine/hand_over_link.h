// What both roles have of the way to other instances: messages out and in as values, parts by tag.
//
// Threads: the engine's.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "base/log.h"
#include "engine/role.h"
#include "pd/wire.h"

namespace baton::engine {

class HandOverLink {
 public:
  HandOverLink(const HandOverLinks& links, transfer::Memory memory) : links_(links), memory_(std::move(memory)) {}

  Status enter(std::function<void()> wake) {
    links_.transport->on_event(std::move(wake));
    return links_.transport->enter(agent(links_.self), memory_);
  }
  void leave() { links_.transport->leave(); }

  void send(const pd::Envelope& envelope) { links_.messenger->send(envelope.to, pd::encode(envelope)); }
  // Nothing, if it is no message.
  std::optional<pd::Envelope> read(std::span<const std::byte> message) {
    Result<pd::Envelope> envelope = pd::decode(message);
    if (envelope.ok()) return std::move(envelope).value();
    if (garbled_++ == 0) log_warning("instance {}: {}", links_.self.instance, envelope.error().message);
    return {};
  }

  pd::Process self() const { return links_.self; }
  transfer::Transport& transport() { return *links_.transport; }
  const transfer::Metrics& transferred() const { return links_.transport->metrics(); }
  int64_t garbled() const { return garbled_; }
  static transfer::Agent agent(pd::Process p) { return {p.instance, p.epoch}; }

 private:
  HandOverLinks links_;
  transfer::Memory memory_;
  int64_t garbled_ = 0;
};

}  // namespace baton::engine
