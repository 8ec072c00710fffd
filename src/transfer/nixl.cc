#include "transfer/nixl.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "transfer/nixl_mail.h"
#include "transfer/nixl_self_test.h"
#include "transfer/nixl_worker.h"

namespace baton::transfer {
namespace {

// Registering memory may touch every page of it.
constexpr std::chrono::minutes kEnterLimit{10};
// Beyond the limit that the thread itself keeps: a machine with more work than cores, and what the library does to end an agent.
constexpr std::chrono::seconds kGrace{20};

Error not_here() { return {Error::Kind::kNotFound, "this instance has not entered its transport, or has left it"}; }

}  // namespace

Nixl::Nixl(NixlOptions options) : options_(std::move(options)), mail_(std::make_shared<NixlMail>()) {}

Nixl::~Nixl() { leave(); }

Status Nixl::enter(Agent self, Memory memory) {
  BATON_CHECK_MSG(!thread_.joinable() && self_ == Agent{}, "process {}.{} has entered before", self.instance, self.epoch);
  if (options_.device >= 0 && !options_.checksum)
    return Error{Error::Kind::kUnsupported, "pages on a GPU cannot be handed over: nothing computes checksums of them there"};
  if (!options_.checksum) options_.checksum = checksum_of;
  BATON_ASSIGN(const NixlFunctions* library, load_nixl());
  BATON_TRY(nixl_self_test(*library));
  self_ = self;
  memory_ = std::move(memory);
  thread_ = std::thread([library, options = options_, self, own = memory_, mail = mail_, notify = notify_] {
    NixlWorker(*library, options, self, own, *mail, notify).run();
    const std::lock_guard lock(mail->mutex);
    mail->ended = true;
    mail->to_owner.notify_all();
  });
  std::unique_lock lock(mail_->mutex);
  if (!mail_->to_owner.wait_for(lock, kEnterLimit, [this] { return mail_->entered.has_value(); }))
    return Error{Error::Kind::kIo, fmt::format("the library NIXL took longer than {} minutes to register memory", kEnterLimit.count())};
  return *mail_->entered;
}

void Nixl::leave() {
  if (!thread_.joinable()) return;
  std::unique_lock lock(mail_->mutex);
  mail_->stop = true;
  mail_->orders.clear();
  mail_->to_worker.notify_all();
  mail_->to_owner.notify_all();
  const bool ended = mail_->to_owner.wait_for(lock, options_.leave_limit + kGrace, [this] { return mail_->ended; });
  metrics_ = mail_->metrics;
  metrics_.waiting = 0;
  lock.unlock();
  if (ended) return thread_.join();
  // It holds all that it uses.
  thread_.detach();
  ++metrics_.left_behind;
  log_warning("instance {} leaves a connection behind that the library NIXL does not end", self_.instance);
}

Status Nixl::post(Part part) {
  BATON_CHECK(part.from_pages.size() == part.to_pages.size() && std::ssize(part.notice) <= kMostNoticeBytes);
  for (const int32_t page : part.from_pages) BATON_CHECK_MSG(has(memory_.pages, page), "page {} of {}", page, memory_.pages.objects);
  if (part.from_slot >= 0) BATON_CHECK_MSG(has(memory_.slots, part.from_slot), "slot {} of {}", part.from_slot, memory_.slots.objects);
  const std::lock_guard lock(mail_->mutex);
  if (!mail_->here()) return not_here();
  const auto peer = mail_->peers.find(part.to);
  if (peer == mail_->peers.end())
    return Error{Error::Kind::kNotFound,
                 fmt::format("instance {} (epoch {}) is not here; it may have been started again", part.to.instance, part.to.epoch)};
  BATON_TRY(check_receiver(part, peer->second.memory.pages.objects, peer->second.memory.slots.objects));
  mail_->orders.emplace_back(NewPart{std::move(part), TransferClock::now()});
  ++mail_->metrics.waiting;
  mail_->to_worker.notify_all();
  return {};
}

void Nixl::progress() {
  arrivals_.clear();
  completions_.clear();
  const std::lock_guard lock(mail_->mutex);
  if (!mail_->here()) return;
  arrivals_.swap(mail_->arrivals);
  completions_.swap(mail_->completions);
  metrics_ = mail_->metrics;
  metrics_.peers = std::ssize(mail_->peers);
}

uint64_t Nixl::checksum(std::span<const int32_t> pages, int32_t slot, uint32_t slot_parts) const {
  return options_.checksum(held_extents(memory_, pages, slot, slot_parts));
}

std::vector<std::byte> Nixl::introduction() const {
  const std::lock_guard lock(mail_->mutex);
  return mail_->here() ? mail_->introduction : std::vector<std::byte>();
}

Status Nixl::check_peer(const Introduction& other) const {
  const Agent agent = other.agent;
  if (!mail_->here()) return not_here();
  BATON_TRY(check_introduction(other, kNixlTransport, self_, memory_));
  for (const auto& [known, theirs] : mail_->peers) {
    if (known.instance != agent.instance) continue;
    if (known.epoch > agent.epoch)
      return Error{Error::Kind::kInvalid,
                   fmt::format("instance {} has been started again since this introduction was written", agent.instance)};
    if (known == agent && theirs != other)
      return Error{Error::Kind::kInvalid,
                   fmt::format("two processes call themselves instance {} (epoch {}); give each instance a number of "
                               "its own",
                               agent.instance, agent.epoch)};
  }
  return {};
}

Result<Agent> Nixl::meet(std::span<const std::byte> introduction) {
  BATON_ASSIGN(Introduction other, decode_introduction(introduction));
  const Agent agent = other.agent;
  const auto outcome = std::make_shared<std::optional<Status>>();
  std::unique_lock lock(mail_->mutex);
  BATON_TRY(check_peer(other));
  mail_->orders.emplace_back(NewPeer{std::move(other), outcome});
  mail_->to_worker.notify_all();
  mail_->to_owner.wait_for(lock, options_.meet_limit + kGrace, [&] { return outcome->has_value() || mail_->stop; });
  if (outcome->has_value() && (*outcome)->ok()) return agent;
  if (outcome->has_value()) return (*outcome)->error();
  if (mail_->stop) return not_here();
  return Error{Error::Kind::kIo, fmt::format("instance {} cannot be reached: the library NIXL does not come back", agent.instance)};
}

void Nixl::part_with(Agent agent) {
  const std::lock_guard lock(mail_->mutex);
  if (!mail_->here()) return;
  mail_->peers.erase(agent);
  mail_->orders.emplace_back(GonePeer{agent});
  mail_->to_worker.notify_all();
}

}  // namespace baton::transfer
