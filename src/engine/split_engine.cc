#include "engine/split_engine.h"

#include <map>
#include <mutex>

namespace baton::engine {

// A message is a call. Who has gone gets none.
class SplitEngine::Post final : public Messenger {
 public:
  void send(pd::Process to, std::span<const std::byte> message) override {
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    const auto found = engines_.find(to.instance);
    for (int n = copies ? copies(message) : 1; n > 0; --n) {
      if (found == engines_.end())
        early_[to.instance].emplace_back(message.begin(), message.end());
      else
        found->second->deliver(message);
    }
  }
  // What it was told while it was being made is not lost.
  void join(pd::InstanceId instance, Engine& engine) {
    const std::lock_guard lock(mutex_);
    engines_[instance] = &engine;
    for (const auto& message : early_[instance]) engine.deliver(message);
    early_.erase(instance);
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }

  std::function<int(std::span<const std::byte>)> copies;

 private:
  std::mutex mutex_;
  std::map<pd::InstanceId, Engine*> engines_;
  std::map<pd::InstanceId, std::vector<std::vector<std::byte>>> early_;  // for those that have not joined: a few pings and grants
  bool closed_ = false;
};

SplitEngine::SplitEngine() : post_(std::make_unique<Post>()) {}

SplitEngine::~SplitEngine() { post_->close(); }

Result<std::unique_ptr<SplitEngine>> SplitEngine::open(const model::Checkpoint& checkpoint, const LocalOptions& options,
                                                       const SplitOptions& split) {
  BATON_CHECK(split.decodes > 0 && split.prefills > 0);
  std::unique_ptr<SplitEngine> e(new SplitEngine());
  e->post_->copies = split.copies;
  std::vector<pd::InstanceId> prefills;
  std::vector<transfer::RemoteTransport*> remote_prefills, remote_decodes;
  for (int32_t i = 0; i < split.decodes + split.prefills; ++i) {
    const bool prefill = i < split.prefills;
    LocalOptions o = options;
    o.hand_over.role = prefill ? RoleKind::kPrefill : RoleKind::kDecode;
    o.hand_over.links.self = {static_cast<pd::InstanceId>(i + 1), 1};
    o.hand_over.links.messenger = e->post_.get();
    std::vector<transfer::RemoteTransport*>& end = prefill ? remote_prefills : remote_decodes;
    if (split.transport) {
      std::unique_ptr<transfer::RemoteTransport> transport = split.transport();
      end.push_back(transport.get());
      e->transports_.push_back(std::move(transport));
    } else {
      e->transports_.push_back(std::make_unique<transfer::InProcess>(e->exchange_));
    }
    o.hand_over.links.transport = e->transports_.back().get();
    o.hand_over.prefills = prefills;
    o.hand_over.decodes = split.decodes;
    constexpr pd::Time kDay = pd::Time{86'400} * 1'000'000'000;
    pd::DecodeOptions patient;
    patient.patience = patient.order_limit = patient.most_wait = kDay;
    o.hand_over.waits = split.waits.value_or(patient);
    BATON_ASSIGN(auto engine, LocalEngine::open(checkpoint, o));
    e->post_->join(o.hand_over.links.self.instance, engine->engine());
    if (prefill) prefills.push_back(o.hand_over.links.self.instance);
    (prefill ? e->prefills_ : e->decodes_).push_back(std::move(engine));
  }
  for (transfer::RemoteTransport* from : remote_prefills)
    for (const transfer::RemoteTransport* to : remote_decodes) BATON_TRY(from->meet(to->introduction()));
  return e;
}

void SplitEngine::wait_idle() {
  // Decode is idle when prefill has answered, and prefill a moment later.
  for (const auto& e : decodes_) e->engine().wait_idle();
  for (const auto& e : prefills_) e->engine().wait_idle();
}

}  // namespace baton::engine
