// The engine: requests from any thread, one engine thread that plans, one executor that computes.
//
// The engine thread alone writes scheduler and cache state. It plans cycle n + 1 while n runs. Everything that it is told goes through one
// bounded mailbox; everything that it tells goes to the sinks, on its own thread. With a role (engine/role.h) it is one of several
// instances that hand prompts over: requests go through the role, and so does what other instances say.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "engine/cycle_executor.h"
#include "engine/role.h"
#include "engine/step_times.h"
#include "sched/scheduler.h"

namespace baton::engine {

// Hears of one request. Called on the engine thread: must return soon and must not call the engine's blocking functions.
class Sink {
 public:
  virtual ~Sink() = default;
  // A token, an end or both; logprob and top as the request asked. After the event that is `last` the sink is never called again.
  virtual void on_event(const sched::Event& event, float logprob, std::span<const ops::TokenLogprob> top) = 0;
  // The prompt's log-probabilities from the token at `first` on, where the request asks: in order, from token 1 to the last, before the
  // first event with a token. `top`: as many for each token as the request's prompt_logprobs, most likely first.
  virtual void on_prompt_logprobs([[maybe_unused]] int32_t first, [[maybe_unused]] std::span<const float> logprobs,
                                  [[maybe_unused]] std::span<const ops::TokenLogprob> top) {}
  // Why the choice is about to end with kConstraint, or with kFailed where that was not the device; its event follows.
  virtual void on_problem([[maybe_unused]] int32_t choice, [[maybe_unused]] const Error& error) {}
  // The request found the queue full: there are no events. The sink is never called again.
  virtual void on_refused(const Error& error) = 0;
};

struct EngineOptions {
  sched::SchedulerOptions scheduler;
  bool plan_ahead = true;      // false: a cycle is planned when the one before has completed; a reference, and for tests
  int32_t max_mail = 1 << 16;  // messages that the engine has not read yet
};

struct EngineMetrics {
  sched::Metrics scheduler;
  StepTimes host_time;                                  // per cycle: reading mail, planning, launching, completing, telling the sinks
  CycleTimes device;                                    // of completed cycles
  CycleTimes decoding;                                  // of these, those without rows of prompts
  int64_t decoding_cycles = 0, decoding_sequences = 0;  // likewise; sequences, counted in each cycle
  StepTimes host_cpu;  // processor time of the engine's thread per cycle, whatever for; what others take of the processor is not in it
  int64_t mail = 0;    // messages waiting
  RoleMetrics role;    // zeros without one
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> create(std::unique_ptr<CycleExecutor> executor, const EngineOptions& options,
                                                std::unique_ptr<Role> role = nullptr);
  // Cancels what is left, waits until it has ended, and stops the thread.
  ~Engine();

  // From any thread. Refuses what can never run (kInvalid, naming the field), and kExhausted if the mailbox is full; that the queue is full
  // only the sink hears. The sink outlives its last event. `constraint`, which may be null, holds the output to a form from its first token
  // on; further choices get forks of it.
  Result<sched::RequestId> submit(sched::RequestSpec spec, Sink& sink, std::unique_ptr<Constraint> constraint = nullptr);
  void cancel(sched::RequestId id);
  void stop(sched::RequestId id, int32_t choice);

  // What another instance says, from any thread. Where the mailbox is full it is lost, as it may be on its way.
  void deliver(std::span<const std::byte> message);
  // Of a decode instance: the prefill instances that it may order from, from now on. From any thread; nothing without a role.
  void set_prefills(std::vector<pd::InstanceId> instances);
  // The process of another instance is known to be gone. From any thread; nothing without a role.
  void gone(pd::Process process);

  // From any thread, waits for the engine thread.
  int32_t flush_cache();
  // Waits until nothing is left to do.
  void wait_idle();
  // From any thread; as of the end of a recent cycle, or later when idle.
  EngineMetrics metrics() const;

 private:
  using Constraints = std::vector<std::unique_ptr<Constraint>>;  // by choice; empty: none
  struct Submit {
    sched::RequestId id;
    sched::RequestSpec spec;
    Sink* sink;
    Constraints constraints;
  };
  struct Cancel {
    sched::RequestId id;
  };
  struct Stop {
    sched::RequestId id;
    int32_t choice;
  };
  struct Flush {
    int32_t* pages;
    bool* done;
  };
  struct Delivered {
    std::vector<std::byte> message;
  };
  struct Prefills {
    std::vector<pd::InstanceId> instances;
  };
  struct Gone {
    pd::Process process;
  };
  using Message = std::variant<Submit, Cancel, Stop, Flush, Delivered, Prefills, Gone>;

  Engine(std::unique_ptr<CycleExecutor> executor, const EngineOptions& options, std::unique_ptr<sched::Scheduler> scheduler,
         std::unique_ptr<Role> role);
  void run();
  bool read_mail();
  void handle(Submit& m);
  void handle(const Cancel& m) { cancel_now(m.id); }
  void handle(const Stop& m) { scheduler_->stop(m.id, m.choice); }
  void handle(const Flush& m);
  void handle(const Delivered& m);
  void handle(const Prefills& m);
  void handle(const Gone& m);
  void cancel_now(sched::RequestId id);
  bool stop_now();
  bool has_role() const { return role_ != nullptr && !role_stopped_; }
  void wake();
  bool plan();
  void finish(const CycleResult& result);
  void tell(const CycleResult* result);
  void tell(const sched::Event& event, const CycleResult* result);
  void drop_constraints();
  void wait();
  void publish();

  EngineOptions options_;
  std::unique_ptr<CycleExecutor> executor_;
  std::unique_ptr<sched::Scheduler> scheduler_;
  std::unique_ptr<Role> role_;  // may be null
  bool role_stopped_ = false;
  struct Listener {
    Sink* sink;
    int32_t logprobs;  // as the request asked
  };
  std::unordered_map<sched::RequestId, Listener> listeners_;  // of the engine thread
  sched::Cycle cycle_;
  // What has been launched and is not complete, oldest first.
  struct Launched {
    int64_t sequences;  // that decode
    bool prompts;       // there are rows of prompts, too
  };
  std::deque<Launched> launched_;
  speculate::CycleCosts costs_;
  std::vector<BoundChoice> bound_;
  // Until the scheduler has forgotten the request: cycles that are launched may still draw for it.
  std::unordered_map<sched::RequestId, Constraints> constraints_;
  std::vector<sched::RequestId> told_;  // of these, those whose last event has been told
  std::vector<Message> reading_;
  int64_t step_ns_ = 0;  // spent since the last completed cycle
  int64_t cpu_ns_ = 0;   // of the thread, when that cycle had completed
  CycleTimes device_, decoding_;
  int64_t decoding_cycles_ = 0, decoding_sequences_ = 0;
  struct Step {
    int64_t time_ns, cpu_ns;
  };
  std::vector<Step> steps_;  // completed, and not published yet

  mutable std::mutex mutex_;  // what follows
  std::condition_variable mailed_;
  std::condition_variable settled_;  // a flush is done, or the engine is idle
  std::vector<Message> mail_;
  bool result_there_ = false;
  bool woken_ = false;  // for the role
  bool stopping_ = false;
  bool idle_ = true;
  sched::RequestId next_id_ = 1;
  EngineMetrics published_;

  std::thread thread_;
};

}  // namespace baton::engine
