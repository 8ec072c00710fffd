// Prefill's end in an engine: orders become requests of the scheduler that are prompt_only, their progress becomes writes.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "engine/hand_over_link.h"
#include "pd/prefill_end.h"

namespace baton::engine {

class PrefillRole final : public Role {
 public:
  // `memory`: of the executor whose scheduler this will be. `options.self` is links.self.
  PrefillRole(const pd::PrefillOptions& options, const HandOverLinks& links, transfer::Memory memory);

  Status start(sched::Scheduler& scheduler, std::function<void()> wake) override;
  Status check(const sched::RequestSpec& spec) const override;
  Status submit(sched::RequestId id, sched::RequestSpec spec, sched::Time now) override;
  void cancel(sched::RequestId id, sched::Time now) override;
  void receive(std::span<const std::byte> message, sched::Time now) override;
  void gone(pd::Process process, sched::Time) override { end_.gone(process); }
  void advance(sched::Time now) override;
  bool busy() const override { return !end_.actions().empty(); }
  sched::Time next_wake() const override { return end_.next_wake(); }
  bool takes(const sched::Event& event, sched::Time now) override;
  std::span<const sched::Event> events() const override { return {}; }
  void clear_events() override {}
  void device_failed(sched::Time) override {}  // every job ends by an event of its own
  void stop() override;
  bool idle() const override { return end_.idle(); }
  RoleMetrics metrics() const override;

 private:
  void progress();
  void carry_out(pd::StartJob& action, sched::Time now);
  void carry_out(pd::StopJob& action, sched::Time now);
  void carry_out(pd::Write& action, sched::Time now);
  void carry_out(pd::SendReply& action, sched::Time now);

  struct Posted {
    pd::JobId job;
    int32_t part;
  };

  pd::PrefillEnd end_;
  HandOverLink link_;
  sched::Scheduler* scheduler_ = nullptr;
  std::unordered_set<pd::JobId> running_;        // that the scheduler knows
  std::unordered_map<uint64_t, Posted> posted_;  // by tag
  uint64_t next_tag_ = 1;
};

}  // namespace baton::engine
