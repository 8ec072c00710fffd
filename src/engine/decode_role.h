// Decode's end in an engine: requests wait for their prompts, which come from prefill instances into the scheduler's own pools, and land
// there. The state of the whole prompt always comes, so the engine needs no snapshots, and no row of a prompt runs here unless a retraction
// finds no room on the host.
#pragma once

#include <unordered_map>

#include "engine/hand_over_link.h"
#include "pd/decode_end.h"

namespace baton::engine {

class DecodeRole final : public Role {
 public:
  // `options.self` is links.self; `options.slots` are the scheduler's.
  DecodeRole(const pd::DecodeOptions& options, std::span<const pd::InstanceId> prefills, const HandOverLinks& links,
             transfer::Memory memory);

  Status start(sched::Scheduler& scheduler, std::function<void()> wake) override;
  Status check(const sched::RequestSpec& spec) const override;
  Status submit(sched::RequestId id, sched::RequestSpec spec, sched::Time now) override;
  void cancel(sched::RequestId id, sched::Time now) override;
  void receive(std::span<const std::byte> message, sched::Time now) override;
  void set_prefills(std::span<const pd::InstanceId> instances) override { end_->set_prefills(instances); }
  void gone(pd::Process process, sched::Time now) override { end_->gone(process, now); }
  void advance(sched::Time now) override;
  bool busy() const override { return !end_->actions().empty(); }
  sched::Time next_wake() const override { return end_->next_wake(); }
  bool takes(const sched::Event&, sched::Time) override { return false; }
  std::span<const sched::Event> events() const override { return events_; }
  void clear_events() override { events_.clear(); }
  void device_failed(sched::Time now) override { end_->device_failed(now); }
  void stop() override { link_.leave(); }
  bool idle() const override { return end_->idle(); }
  RoleMetrics metrics() const override;

 private:
  void carry_out(pd::Send& action, sched::Time now);
  void carry_out(pd::Verify& action, sched::Time now);
  void carry_out(pd::Landed& action, sched::Time now);
  void carry_out(pd::Ended& action, sched::Time now);

  pd::DecodeOptions options_;
  std::vector<pd::InstanceId> prefills_;
  HandOverLink link_;
  sched::Scheduler* scheduler_ = nullptr;
  std::optional<pd::LandingZone> zone_;
  std::optional<pd::DecodeEnd> end_;
  std::unordered_map<sched::RequestId, sched::RequestSpec> waiting_;  // for their prompts
  std::vector<sched::Event> events_;
};

}  // namespace baton::engine
