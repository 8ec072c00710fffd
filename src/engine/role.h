// What an engine is among others: one that computes prompts and answers (no role), or one end of a hand-over. A role sits between the
// engine's mailbox and its scheduler, on the engine's thread.
//
//   decode   takes requests, orders their prompts from prefill instances, and lands them in the scheduler
//   prefill  takes orders, has the scheduler compute the prompts, and writes what comes of them into decode's memory
//
// Instances say things to each other in bytes (pd/wire.h), which a Messenger carries, and write into each other's memory through a
// transfer::Transport; whether that is a call, a socket or a network card is no matter here.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "pd/message.h"
#include "pd/metrics.h"
#include "sched/scheduler.h"
#include "transfer/transport.h"

namespace baton::engine {

// Carries messages to other instances: each as a whole or not at all; it may lose, double, delay and reorder them. What comes from others
// it hands to Engine::deliver.
class Messenger {
 public:
  virtual ~Messenger() = default;
  // Does not wait. From any engine's thread.
  virtual void send(pd::Process to, std::span<const std::byte> message) = 0;
};

// Of a role, as of a recent moment.
struct RoleMetrics {
  pd::DecodeMetrics decode;
  pd::PrefillMetrics prefill;
  transfer::Metrics transfer;
  int64_t garbled = 0;  // messages that were none
};

// On the engine's thread, but for what is said otherwise.
class Role {
 public:
  virtual ~Role() = default;

  // Before anything else, from the thread that makes the engine. The scheduler outlives the role; `wake`, from any thread, has the engine
  // call advance().
  virtual Status start(sched::Scheduler& scheduler, std::function<void()> wake) = 0;

  // Refuses, from any thread, what this instance does not do: kUnsupported, naming the field.
  virtual Status check(const sched::RequestSpec& spec) const = 0;
  // What an engine without a role asks of its scheduler. The request is refused with kExhausted if too many wait.
  virtual Status submit(sched::RequestId id, sched::RequestSpec spec, sched::Time now) = 0;
  virtual void cancel(sched::RequestId id, sched::Time now) = 0;

  virtual void receive(std::span<const std::byte> message, sched::Time now) = 0;
  // Those that a decode instance may order from, from now on.
  virtual void set_prefills(std::span<const pd::InstanceId>) {}
  // Another process is known to be gone.
  virtual void gone(pd::Process process, sched::Time now) = 0;
  // Does whatever there is to do; what that brings for the scheduler is planned next.
  virtual void advance(sched::Time now) = 0;
  // There is more to do now: advance() again before waiting.
  virtual bool busy() const = 0;
  virtual sched::Time next_wake() const = 0;

  // An event of the scheduler, if it is not for anyone who submitted a request.
  virtual bool takes(const sched::Event& event, sched::Time now) = 0;
  // Ends of requests that the scheduler does not know yet.
  virtual std::span<const sched::Event> events() const = 0;
  virtual void clear_events() = 0;

  // A cycle has failed; the scheduler is told next.
  virtual void device_failed(sched::Time now) = 0;
  // The engine stops. Nothing is written from here or to here any more.
  virtual void stop() = 0;
  virtual bool idle() const = 0;
  virtual RoleMetrics metrics() const = 0;
};

// How one is reached and reaches others. Transport and messenger outlive the engine.
struct HandOverLinks {
  pd::Process self;
  transfer::Transport* transport = nullptr;
  Messenger* messenger = nullptr;
};

}  // namespace baton::engine
