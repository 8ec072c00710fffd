// Instances under simulation: the real state machines, a device of hashes or none, and the loop between them that a real engine would be.
//
// A node is a process: it dies by being destroyed, and starts again as another one with a larger epoch. It reads only its own clock.
//
// Threads: one.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>

#include "pd/decode_end.h"
#include "pd/prefill_end.h"
#include "sched/scheduler.h"
#include "sim/timed_device.h"
#include "sim/token_device.h"

namespace baton::sim {

using Time = int64_t;  // nanoseconds of the world's clock
inline constexpr Time kMillisecond = 1'000'000;
inline constexpr Time kSecond = 1'000'000'000;

// What a process reads when the world's clock says something else.
struct Clock {
  double rate = 1;
  Time offset = 0;
  Time local(Time world) const { return static_cast<Time>(static_cast<double>(world) * rate) + offset; }
  Time world(Time local_time) const { return static_cast<Time>(static_cast<double>(local_time - offset) / rate) + 1; }
};

// What a node asks of the world around it.
class Surroundings {
 public:
  virtual ~Surroundings() = default;
  virtual Time now() const = 0;
  // Does something on this process's behalf at a later time, unless the process is gone by then.
  virtual void later(pd::Process process, Time at, std::function<void()> act) = 0;
  virtual void send(const pd::Envelope& envelope) = 0;
  virtual void post(pd::Process from, const pd::Write& write) = 0;
  // How long this process's device takes for a cycle, and for the checksums of what landed.
  virtual Time cycle_time(pd::Process process, const sched::Cycle& cycle) = 0;
  virtual Time check_time(pd::Process process, const pd::Verify& what) = 0;
  virtual void token(pd::RequestKey request, int32_t token) = 0;
  virtual void end(pd::RequestKey request, sched::FinishReason reason, int64_t cached_tokens) = 0;
};

struct NodeOptions {
  pd::Process self;
  Clock clock;
  sched::SchedulerOptions scheduler;
  std::vector<pd::InstanceId> prefills;  // of a decode node
  int32_t credits = 1;                   // of a prefill node
  int32_t most_waiting = 64;
  int32_t remembered_pages = 64;  // of a decode node, what it believes each prefill node to have
  // Whether its device holds what it is given and finds out every row that reads something else. Without, only time passes there.
  bool contents = true;
  double yield = 1;  // without: tokens of a cycle for each sequence, in the mean
};

class Node {
 public:
  Node(const NodeOptions& options, Surroundings& world);
  virtual ~Node() = default;

  pd::Process self() const { return options_.self; }
  virtual void receive(const pd::Envelope& envelope) = 0;
  virtual void gone(pd::Process process) = 0;
  // Does whatever there is to do now, and sees to it that it will be called again.
  virtual void pump() = 0;
  virtual bool idle() const = 0;
  // The next cycle that comes back has failed.
  void break_device() { broken_ = true; }
  // The first thing found wrong; empty: nothing. `deep`: everything is recomputed.
  virtual std::string check(bool deep) const = 0;

  TokenDevice& device() { return *device_; }
  const sched::Scheduler& scheduler() const { return *scheduler_; }
  sched::Scheduler& scheduler() { return *scheduler_; }

 protected:
  Time local() const { return options_.clock.local(world_.now()); }
  void launch();  // cycles, as many as may be under way
  void wake_at(Time local_time);
  virtual void tell() = 0;  // the scheduler's events
  virtual void device_failed() = 0;
  void tell_tokens();  // ... where they are tokens and ends
  // What both kinds hold in common when nothing is left to do.
  std::string check_idle() const;
  // The first thing that its device was wrongly asked.
  const std::string& device_problem() const;

  NodeOptions options_;
  Surroundings& world_;
  std::unique_ptr<sched::Scheduler> scheduler_;
  std::optional<TokenDevice> device_;  // one of the two: see NodeOptions::contents
  std::optional<TimedDevice> timed_;

 private:
  void complete();

  std::deque<sched::Cycle> launched_;
  sched::Cycle planning_;
  Time device_free_ = 0;
  bool broken_ = false;
  Time wake_ = sched::kNever;  // by the world's clock
};

// Computes prompts and goes on from them itself.
class UnifiedNode final : public Node {
 public:
  using Node::Node;

  // False: the queue is full.
  bool submit(pd::RequestKey key, sched::RequestSpec spec);
  void receive(const pd::Envelope&) override {}
  void gone(pd::Process) override {}
  void pump() override { launch(); }
  bool idle() const override { return scheduler_->idle(); }
  std::string check(bool deep) const override;

 private:
  void tell() override { tell_tokens(); }
  void device_failed() override {}
};

class DecodeNode final : public Node {
 public:
  DecodeNode(const NodeOptions& options, Surroundings& world);

  // False: the queue is full.
  bool submit(pd::RequestKey key, const sched::RequestSpec& spec, Time within);
  void cancel(pd::RequestKey key);
  void receive(const pd::Envelope& envelope) override;
  void gone(pd::Process process) override;
  void pump() override;
  bool idle() const override { return end_.idle() && scheduler_->idle(); }
  std::string check(bool deep) const override;

  const pd::DecodeEnd& end() const { return end_; }

 private:
  void tell() override { tell_tokens(); }
  void device_failed() override { end_.device_failed(local()); }
  void carry_out(pd::DecodeAction& action);
  void verify(const pd::Verify& v);

  pd::LandingZone zone_;
  pd::DecodeEnd end_;
  std::unordered_map<pd::RequestKey, sched::RequestSpec> specs_;  // of what has not landed
};

class PrefillNode final : public Node {
 public:
  PrefillNode(const NodeOptions& options, Surroundings& world);

  void receive(const pd::Envelope& envelope) override;
  void gone(pd::Process process) override;
  void pump() override;
  bool idle() const override { return end_.idle() && scheduler_->idle(); }
  std::string check(bool deep) const override;
  void written(pd::JobId job, int32_t part, bool ok, uint64_t checksum);
  bool holds(pd::JobId job) const { return scheduler_->find(job) != nullptr; }
  bool lost(pd::JobId job) const { return lost_.contains(job); }  // it ended since the device failed

  const pd::PrefillEnd& end() const { return end_; }

 private:
  void tell() override;
  void device_failed() override {}  // every job ends by an event of its own
  void carry_out(const pd::PrefillAction& action);

  std::unordered_set<pd::JobId> lost_;
  pd::PrefillEnd end_;
};

}  // namespace baton::sim
