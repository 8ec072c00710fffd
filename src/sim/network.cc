// The network of a world, the writes that cross it, and the mishaps of its instances.
#include <algorithm>

#include "base/check.h"
#include "sim/world.h"

namespace baton::sim {

bool World::chance(Fault fault) {
  if (resting_) return false;
  const bool happens = luck_.chance(climate_.chance[static_cast<size_t>(fault)]);
  tally_.faults[static_cast<size_t>(fault)] += happens ? 1 : 0;
  return happens;
}

Time World::parted_until(int32_t a, int32_t b) const {
  const auto found = parted_.find({std::min(a, b), std::max(a, b)});
  return found == parted_.end() ? 0 : found->second;
}

void World::send(const pd::Envelope& envelope) {
  ++tally_.messages;
  if (chance(Fault::kLoss)) return;
  for (int copies = chance(Fault::kDouble) ? 2 : 1; copies > 0; --copies)
    deliver(envelope, chance(Fault::kDelay) ? luck_.between(300, 8000) * kMillisecond : luck_.between(100, 3000) * kMillisecond / 1000);
}

void World::deliver(const pd::Envelope& envelope, Time delay) {
  const int32_t to = index(envelope.to.instance);
  put(now_ + delay, to, 0, [this, to, envelope] {
    if (parted_until(index(envelope.from.instance), to) > now_) return;
    at(to).node->receive(envelope);
  });
}

// Checksums are those of the source when the write is posted; the bytes are read when they travel.
void World::post(pd::Process from, const pd::Write& w) {
  auto posted = std::make_shared<Posted>(Posted{.from = from, .write = w, .pages = {}, .slot = {}});
  const TokenDevice& device = at(index(from.instance)).node->device();
  for (const int32_t page : w.from_pages) posted->pages.push_back(device.page(page));
  for (const PageContent& page : posted->pages) posted->checksum = checksum(page, posted->checksum);
  if (w.from_slot >= 0) {
    posted->slot = device.true_slot(w.from_slot);
    posted->checksum = checksum(posted->slot);
  }
  ++tally_.writes;
  tally_.pages_written += std::ssize(w.from_pages);
  posted->late = chance(Fault::kLateWrite);
  const Time delay = posted->late ? luck_.between(50, 1500) * kMillisecond : luck_.between(200, 5000) * kMillisecond / 1000;
  const bool fails = chance(Fault::kWriteError);
  put(now_ + delay, -1, 0, [this, posted, fails] { fails ? over(*posted, false) : land(*posted); });
}

// The write arrives, whatever has become of the order and of who posted it; only a process that is not there any more has no memory.
void World::land(const Posted& posted) {
  const int32_t from = index(posted.from.instance);
  const int32_t to = index(posted.write.to.instance);
  if (const Time until = parted_until(from, to); until > now_) {  // the sender's network card tries again, or gives up
    if (!is_up(posted.from)) return;
    if (luck_.chance(0.3)) return over(posted, false);
    auto again = std::make_shared<Posted>(posted);
    // Tries end with the process: what it posted is not written long after its death, which is what `linger` relies on.
    return put(until + luck_.below(10) * kMillisecond, -1, 0, [this, again] {
      if (is_up(again->from)) land(*again);
    });
  }
  if (!is_up(posted.write.to)) return over(posted, false);
  write(posted, static_cast<DecodeNode&>(*at(to).node));
  send({posted.from, posted.write.to, 0, posted.write.notice});
  over(posted, true);
}

void World::write(const Posted& posted, DecodeNode& to) {
  const pd::Write& w = posted.write;
  const bool alive = is_up(posted.from);
  auto* source = alive ? static_cast<PrefillNode*>(at(index(posted.from.instance)).node.get()) : nullptr;
  tally_.after_death += alive ? 0 : 1;
  // A job that its device took with it is answered as failed when its writes are over, whatever they read.
  if (alive && !source->holds(w.job) && !source->lost(w.job)) return fail("a write reads memory that its job has given back");
  const pd::PartLanded& notice = w.notice;
  tally_.late_landings += to.end().state(notice.landing) == pd::OrderState::kQuarantined ? 1 : 0;
  for (size_t i = 0; i < w.to_pages.size(); ++i) {
    if (!to.end().may_be_written(notice.ticket, notice.landing, w.to_pages[i]))
      return fail(
          fmt::format("a write lands in page {} of decode instance {}, which is not its order's", w.to_pages[i], to.self().instance));
    to.device().write_page(w.to_pages[i], alive ? source->device().page(w.from_pages[i]) : posted.pages[i]);
  }
  if (w.from_slot >= 0) {
    if (!to.end().may_be_written(notice.ticket, notice.landing, -1))
      return fail(fmt::format("a write lands in slot {} of decode instance {}, which is not its order's", w.to_slot, to.self().instance));
    to.device().write_slot(w.to_slot, alive ? source->device().true_slot(w.from_slot) : posted.slot, w.slot_parts);
  }
  if (!chance(Fault::kCorrupt)) return;
  ++corruptions_;
  constexpr Prefix kSpoilt = 0x5A5A;
  if (w.from_slot >= 0) {
    SlotContent spoilt = to.device().slot(w.to_slot);
    spoilt.state ^= kSpoilt;
    to.device().write_slot(w.to_slot, spoilt, pd::slot_part::kState);
  } else if (!w.to_pages.empty()) {
    PageContent spoilt = to.device().page(w.to_pages.back());
    spoilt.after ^= kSpoilt;
    to.device().write_page(w.to_pages.back(), spoilt);
  }
}

// The poster hears of it a little later.
void World::over(const Posted& posted, bool ok) {
  const int32_t from = index(posted.from.instance);
  put(now_ + luck_.between(10, 1000) * kMillisecond / 1000, from, posted.from.epoch,
      [this, from, job = posted.write.job, part = posted.write.notice.part, ok, sum = posted.checksum] {
        static_cast<PrefillNode&>(*at(from).node).written(job, part, ok, sum);
      });
}

void World::happen(const Mishap& m) {
  if (resting_) return;
  Instance& n = at(m.victim);
  switch (m.kind) {
    case Fault::kCrashPrefill:
    case Fault::kCrashDecode:
      if (n.node == nullptr) return;
      crash(m);
      break;
    case Fault::kPartition:
      trace("instances {} and {} do not reach each other for {} ms", m.victim + 1, m.other + 1, m.lasts / kMillisecond);
      parted_[{std::min(m.victim, m.other), std::max(m.victim, m.other)}] = now_ + m.lasts;
      break;
    case Fault::kHang:
      trace("instance {} hangs for {} ms", m.victim + 1, m.lasts / kMillisecond);
      n.hung_until = now_ + m.lasts;
      break;
    case Fault::kSlow:
      n.slow_until = now_ + m.lasts;
      n.slowness = luck_.between(2, 30);
      trace("instance {} is {} times slower for {} ms", m.victim + 1, n.slowness, m.lasts / kMillisecond);
      break;
    case Fault::kDevice:
      if (n.node == nullptr) return;
      trace("the device of instance {} is about to fail", m.victim + 1);
      n.node->break_device();
      break;
    default: BATON_CHECK(false);
  }
  ++tally_.faults[static_cast<size_t>(m.kind)];
}

// The process is gone, with all its memory. The next one starts at the same address.
void World::crash(const Mishap& m) {
  Instance& n = at(m.victim);
  const pd::Process dead = n.node->self();
  trace("instance {} dies, for {} ms", dead.instance, m.lasts / kMillisecond);
  collect(*n.node);
  if (n.decodes) mismatches_ += static_cast<const DecodeNode&>(*n.node).end().metrics().mismatches;
  n.node.reset();
  n.hung_until = 0;
  put(now_ + m.lasts, -1, 0, [this, i = m.victim] {
    if (at(i).node == nullptr) start(i);
  });
  if (m.told)
    for (int32_t i = 0; i < std::ssize(instances_); ++i)
      put(now_ + luck_.between(10, 3000) * kMillisecond, i, 0, [this, i, dead] { at(i).node->gone(dead); });
  if (n.decodes) forget_clients_of(dead);
}

}  // namespace baton::sim
