#include "sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/check.h"

namespace baton::sim {
namespace {

// What comes first is at the front of the heap.
constexpr auto kLater = [](const auto& a, const auto& b) { return a.at != b.at ? a.at > b.at : a.order > b.order; };

}  // namespace

int64_t Tally::fault_count() const {
  int64_t n = 0;
  for (const int64_t f : faults) n += f;
  return n;
}

void Tally::add(const Tally& o) {
  const auto sum = [&](auto... member) { ((this->*member += o.*member), ...); };
  using T = Tally;
  sum(&T::worlds, &T::events, &T::deep_checks, &T::requests, &T::completed, &T::cancelled, &T::expired, &T::failed, &T::refused, &T::lost,
      &T::unserved, &T::tokens, &T::messages, &T::writes, &T::pages_written, &T::late_landings, &T::after_death, &T::orders, &T::retried,
      &T::mismatches, &T::stray_messages, &T::peers_restarted, &T::pages_matched, &T::pages_ordered, &T::cycles, &T::retractions,
      &T::evictions, &T::reused_tokens);
  for (size_t i = 0; i < kFaultKinds; ++i) faults[i] += o.faults[i];
  orders_moved.add(o.orders_moved);
  jobs_moved.add(o.jobs_moved);
}

World::World(const WorldOptions& options)
    : options_(options), climate_(climate(options.seed, options.without)), arrivals_(options.seed, 3), luck_(options.seed, 4) {
  Random r(options.seed, 5);
  std::vector<pd::InstanceId> prefills;
  for (int32_t i = 0; i < climate_.decodes + climate_.prefills; ++i) {
    Instance& n = instances_.emplace_back();
    n.decodes = i < climate_.decodes;
    if (!n.decodes) prefills.push_back(static_cast<pd::InstanceId>(i + 1));
    NodeOptions& o = n.options;
    o.self.instance = static_cast<pd::InstanceId>(i + 1);
    const bool skewed = !climate_.calm && (options.without >> static_cast<uint32_t>(Fault::kSkew) & 1U) == 0;
    const Clock clock{1 + (r.unit() - 0.5) * 0.04, r.below(10'000) * kSecond};
    if (skewed) {
      o.clock = clock;
      ++tally_.faults[static_cast<size_t>(Fault::kSkew)];
    }
    sched::SchedulerOptions& s = o.scheduler;
    s.context_tokens = cache::kPageUnits * 7;
    s.vocabulary = kVocabulary;
    s.prefill_tokens = climate_.prefill_tokens;
    s.growth_tokens = climate_.growth_tokens;
    s.snapshot_tokens = 64;
    s.memory = n.decodes
                   ? sched::MemorySizes{.pages = climate_.decode_pages,
                                        .slots = climate_.decode_slots,
                                        .host_pages = climate_.host_slots * 7,
                                        .host_slots = climate_.host_slots}
                   : sched::MemorySizes{.pages = climate_.prefill_pages, .slots = climate_.prefill_slots, .snapshots = climate_.snapshots};
    o.credits = std::max(1, (climate_.prefill_slots + 1) / climate_.decodes);
  }
  for (Instance& n : instances_) n.options.prefills = prefills;
  for (int32_t i = 0; i < 6; ++i) {
    std::vector<int32_t>& stem = stems_.emplace_back();
    for (int64_t t = r.between(30, climate_.longest_prompt_pages * cache::kPageUnits); t > 0; --t)
      stem.push_back(static_cast<int32_t>(r.below(kVocabulary)));
  }
}

Outcome World::run() {
  for (int32_t i = 0; i < std::ssize(instances_); ++i) start(i);
  const std::vector<Mishap> all = mishaps(options_.seed, climate_, options_.length, options_.without);
  for (int32_t i = 0; i < std::ssize(all); ++i) {
    const auto& only = options_.only_mishaps;
    if (only.has_value() && std::find(only->begin(), only->end(), i) == only->end()) continue;
    put(all[static_cast<size_t>(i)].at, -1, 0, [this, m = all[static_cast<size_t>(i)]] { happen(m); });
  }
  next_request();
  while (violation_.empty() && !queue_.empty() && now_ < options_.length) step();
  if (violation_.empty()) rest();
  for (const Instance& n : instances_)
    if (n.node) collect(*n.node);
  tally_.worlds = 1;
  return {violation_, now_, tally_, static_cast<int32_t>(all.size()), requests_};
}

void World::put(Time at, int32_t instance, pd::Epoch epoch, std::function<void()> act) {
  queue_.push_back({at, ordered_++, instance, epoch, std::move(act)});
  std::push_heap(queue_.begin(), queue_.end(), kLater);
}

void World::step() {
  std::pop_heap(queue_.begin(), queue_.end(), kLater);
  Event e = std::move(queue_.back());
  queue_.pop_back();
  now_ = std::max(now_, e.at);
  ++tally_.events;
  if (e.instance >= 0) {
    Instance& n = at(e.instance);
    if (n.node == nullptr || (e.epoch != 0 && e.epoch != n.epoch)) return;  // its process is gone
    if (n.hung_until > now_) return put(n.hung_until, e.instance, e.epoch, std::move(e.act));
  }
  e.act();
  if (e.instance >= 0) check(e.instance);
}

void World::later(pd::Process process, Time at, std::function<void()> act) {
  put(at, index(process.instance), process.epoch, std::move(act));
}

Time World::cycle_time(pd::Process process, const sched::Cycle& cycle) {
  return on_device(process, 10 * kMillisecond + kMillisecond / 10 * cycle.row_count());
}

Time World::check_time(pd::Process process, const pd::Verify&) { return on_device(process, 3 * kMillisecond); }

Time World::on_device(pd::Process process, Time usual) {
  const Instance& n = at(index(process.instance));
  return n.slow_until > now_ ? usual * n.slowness : usual;
}

void World::start(int32_t i) {
  Instance& n = at(i);
  n.options.self.epoch = ++n.epoch;
  trace("instance {} starts, epoch {}", n.options.self.instance, n.epoch);
  if (n.decodes)
    n.node = std::make_unique<DecodeNode>(n.options, *this);
  else
    n.node = std::make_unique<PrefillNode>(n.options, *this);
  n.node->pump();
}

void World::fail(const std::string& what) {
  if (violation_.empty()) violation_ = what;
}

void World::check(int32_t i) {
  Instance& n = at(i);
  if (n.node == nullptr || !violation_.empty()) return;
  const bool deep = ++n.unchecked >= options_.deep_every;
  if (deep) {
    n.unchecked = 0;
    ++tally_.deep_checks;
  }
  if (const std::string wrong = n.node->check(deep); !wrong.empty())
    fail(fmt::format("{} instance {}: {}", n.decodes ? "decode" : "prefill", n.options.self.instance, wrong));
  int64_t mismatches = mismatches_;
  if (!n.decodes) return;
  for (const Instance& other : instances_)
    if (other.decodes && other.node) mismatches += static_cast<const DecodeNode&>(*other.node).end().metrics().mismatches;
  if (mismatches > corruptions_) fail("checksums differ although nothing was spoilt on its way");
}

// Nothing new comes and everything that was broken is mended. What is under way has to end.
void World::rest() {
  resting_ = true;
  trace("nothing new comes, and what was broken is mended");
  parted_.clear();
  for (int32_t i = 0; i < std::ssize(instances_); ++i) {
    at(i).hung_until = at(i).slow_until = 0;
    if (at(i).node == nullptr) start(i);
  }
  const auto quiet = [this] {
    return clients_.empty() && std::all_of(instances_.begin(), instances_.end(), [](const Instance& n) { return n.node->idle(); });
  };
  constexpr Time kLongEnough = 1800 * kSecond;
  const Time limit = now_ + kLongEnough;
  while (violation_.empty() && !quiet()) {
    if (queue_.empty() || now_ > limit) {
      int64_t waiting = 0;
      for (const Instance& n : instances_) waiting += n.node->idle() ? 0 : 1;
      return fail(fmt::format("it does not come to rest: {} requests have not ended, {} instances are not idle", clients_.size(), waiting));
    }
    step();
  }
  for (int32_t i = 0; i < std::ssize(instances_); ++i) {
    at(i).unchecked = options_.deep_every;
    check(i);
  }
}

void World::collect(const Node& node) {
  const sched::Metrics& m = node.scheduler().metrics();
  tally_.cycles += m.cycles;
  tally_.retractions += m.retractions_to_host + m.retractions_recomputed;
  tally_.evictions += m.pages_evicted;
  tally_.reused_tokens += m.tokens_matched_state;
  if (const auto* d = dynamic_cast<const DecodeNode*>(&node)) {
    const pd::DecodeMetrics& e = d->end().metrics();
    tally_.orders += e.orders;
    tally_.retried += e.retried;
    tally_.mismatches += e.mismatches;
    tally_.stray_messages += e.stray_messages;
    tally_.peers_restarted += e.peers_restarted;
    tally_.pages_matched += e.pages_matched;
    tally_.pages_ordered += e.pages_ordered;
    tally_.orders_moved.add(d->end().transitions());
  } else if (const auto* p = dynamic_cast<const PrefillNode*>(&node)) {
    tally_.jobs_moved.add(p->end().transitions());
    tally_.stray_messages += p->end().metrics().stray_messages;
  }
}

}  // namespace baton::sim
