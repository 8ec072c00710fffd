#include "sim/cell.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "sim/random.h"

namespace baton::sim {
namespace {

constexpr auto kLater = [](const auto& a, const auto& b) { return a.at != b.at ? a.at > b.at : a.order > b.order; };
constexpr int32_t kIds = 1 << 20;

Time time_of(double seconds) { return std::llround(seconds * static_cast<double>(kSecond)); }
double seconds_of(Time time) { return static_cast<double>(time) / static_cast<double>(kSecond); }

}  // namespace

Cell::Cell(const CellOptions& options, const load::Workload& workload, const std::vector<double>& arrivals)
    : options_(options), workload_(workload), arrivals_(arrivals),
      cycles_(std::max(static_cast<double>(options.grain) / options.accepted, 1.0)) {
  BATON_CHECK(options.decodes > 0 && options.decodes + options.prefills <= router::kMostInstances && options.grain > 0);
  instances_.resize(static_cast<size_t>(options.decodes + options.prefills));
  for (int32_t i = 0; i < std::ssize(instances_); ++i) {
    Instance& n = instances_[static_cast<size_t>(i)];
    n.decodes = i < options.decodes;
    n.prefills = !n.decodes || options.prefills == 0;
    n.shape = n.decodes ? &options_.decode : &options_.prefill;
    const NodeOptions o = node_options(*n.shape, i);
    if (!n.decodes)
      n.node = std::make_unique<PrefillNode>(o, *this);
    else if (n.prefills)
      n.node = std::make_unique<UnifiedNode>(o, *this);
    else
      n.node = std::make_unique<DecodeNode>(o, *this);
    if (!n.decodes) continue;
    const Result<int> place = fleet_.add(fmt::format("instance-{}", i), 0);
    BATON_CHECK(place.ok() && *place == i);
    fleet_.probed(i, true, {}, 0);
  }
}

NodeOptions Cell::node_options(const InstanceShape& shape, int32_t i) const {
  NodeOptions o;
  o.self = {static_cast<pd::InstanceId>(i + 1), 1};
  o.contents = false;
  o.most_waiting = options_.most_waiting;
  for (int32_t p = options_.decodes; p < options_.decodes + options_.prefills; ++p)
    o.prefills.push_back(static_cast<pd::InstanceId>(p + 1));
  o.credits = std::max(1, options_.prefill.memory.slots / options_.decodes) + 1;
  const int64_t g = options_.grain;
  sched::SchedulerOptions& s = o.scheduler;
  s.memory = shape.memory;
  s.memory.pages = static_cast<int32_t>(std::max<int64_t>(shape.memory.pages / g, 1));
  s.memory.host_pages = static_cast<int32_t>(shape.memory.host_pages / g);
  o.remembered_pages = std::min(s.memory.pages, 65'536);
  s.context_tokens = coarse(options_.context_tokens) + 1;
  s.vocabulary = kIds;
  s.prefill_tokens = std::max<int64_t>(shape.chunk / g, 1);
  s.growth_tokens = std::max<int64_t>(s.growth_tokens / g, 1);
  s.snapshot_tokens = std::max<int64_t>(shape.snapshot_tokens / g, cache::kPageUnits);
  s.max_waiting = options_.most_waiting;
  o.yield = std::max(options_.accepted / static_cast<double>(g), 1.0);
  s.drafts = static_cast<int32_t>(std::ceil(o.yield)) - 1;  // a step is one cycle with drafts, or several without
  return o;
}

void Cell::put(Time at, std::function<void()> act) {
  queue_.push_back({at, ordered_++, std::move(act)});
  std::push_heap(queue_.begin(), queue_.end(), kLater);
}

CellResult Cell::run() {
  for (Instance& n : instances_) n.node->pump();
  if (!arrivals_.empty()) {
    put(time_of(arrivals_.front()), [this] { arrive(0); });
  } else {
    const auto most = options_.concurrency > 0 ? static_cast<size_t>(options_.concurrency) : workload_.size();
    next_ = std::min(most, workload_.size());
    // Decode and prefill have to have met before the first can be ordered; that is before anybody measures.
    for (size_t c = 0; c < next_; ++c) put(kMillisecond, [this, c] { begin(c, now_); });
  }
  while (!queue_.empty() && (next_ < workload_.size() || conversations_ > 0 || clients_.empty())) {
    std::pop_heap(queue_.begin(), queue_.end(), kLater);
    const Event e = std::move(queue_.back());
    queue_.pop_back();
    now_ = std::max(now_, e.at);
    ++seen_.events;
    e.act();
  }
  return result();
}

// Conversations of an open loop begin whatever has become of those before; where places are bounded, they wait for one.
void Cell::arrive(size_t conversation) {
  next_ = conversation + 1;
  if (next_ < workload_.size()) put(time_of(arrivals_[next_]), [this] { arrive(next_); });
  if (options_.concurrency > 0 && conversations_ >= options_.concurrency)
    held_.emplace_back(conversation, now_);
  else
    begin(conversation, now_);
}

void Cell::begin(size_t conversation, Time intended) {
  ++conversations_;
  turn(static_cast<int64_t>(conversation), 0, intended);
}

void Cell::turn(int64_t conversation, int64_t number, Time intended) {
  const load::Turn& t = workload_[static_cast<size_t>(conversation)].turns[static_cast<size_t>(number)];
  clients_.push_back(
      {.conversation = conversation, .turn = number, .intended = intended, .sent = now_, .left = t.output_tokens, .tried = {}});
  const auto key = static_cast<pd::RequestKey>(clients_.size());
  seen_.most_at_once = std::max(seen_.most_at_once, ++at_once_);
  auto spec = std::make_shared<const sched::RequestSpec>(spec_of(t, key));
  const Time taken = now_ + options_.message + time_of(options_.decode.cost->request_seconds());
  put(taken, [this, key, spec = std::move(spec)] { route(key, spec); });
}

// Tokens follow from the stretches' keys: equal ones are equal.
sched::RequestSpec Cell::spec_of(const load::Turn& t, pd::RequestKey key) const {
  sched::RequestSpec spec;
  int64_t before = 0;
  spec.prompt.reserve(static_cast<size_t>(coarse(t.prompt.tokens())));
  for (const load::Stretch& s : t.prompt.stretches) {
    before += s.tokens;
    const int64_t count = std::max<int64_t>(before / options_.grain - std::ssize(spec.prompt), 0);
    for (int64_t i = 0; i < count; ++i)
      spec.prompt.push_back(static_cast<int32_t>(Random::scramble(s.key + static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15U) % kIds));
  }
  if (spec.prompt.empty()) spec.prompt.push_back(static_cast<int32_t>(key % kIds));
  spec.max_tokens = 1 + coarse(t.output_tokens - 1);
  if (!options_.share_on_decode) spec.salt = key;  // see send()
  return spec;
}

void Cell::route(pd::RequestKey key, std::shared_ptr<const sched::RequestSpec> spec) {
  Client& c = clients_[key - 1];
  std::vector<uint64_t> blocks = pd::page_keys(spec->salt, spec->prompt);
  constexpr size_t kMostBlocks = 512;  // as the router
  blocks.resize(std::min(blocks.size(), kMostBlocks));
  Random luck(options_.seed, 7, key);
  const auto choice = fleet_.choose(blocks, c.tried, luck.next(), now_ms());
  if (!choice) return finish(key, "http 429");
  c.instance = choice->instance;
  fleet_.sent(c.instance, blocks, choice->matched, now_ms());
  put(now_ + options_.message, [this, key, spec] {
    Client& asked = clients_[key - 1];
    Node& node = *instances_[static_cast<size_t>(asked.instance)].node;
    const bool taken = options_.prefills > 0 ? static_cast<DecodeNode&>(node).submit(key, *spec, sched::kNever)
                                             : static_cast<UnifiedNode&>(node).submit(key, *spec);
    if (taken) return;
    leave_router(key, router::Outcome::kTurnedAway);
    asked.tried.push_back(asked.instance);
    route(key, spec);
  });
}

void Cell::leave_router(pd::RequestKey key, router::Outcome outcome) { fleet_.ended(clients_[key - 1].instance, outcome, 0, now_ms()); }

// The first token comes alone, every further one stands for `grain`.
void Cell::token(pd::RequestKey key, int32_t) {
  Client& c = clients_[key - 1];
  const Time seen = now_ + options_.message;
  const int64_t tokens = c.tokens == 0 ? std::min<int64_t>(c.left, 1) : std::min(c.left, options_.grain);
  if (c.tokens == 0) {
    c.first = seen;
  } else if (seen > c.last) {  // a piece is what a cycle yields
    seen_.gaps.add(seconds_of(seen - c.last) * 1e3 / cycles_, cycles_);
  }
  c.last = seen;
  c.tokens += tokens;
  c.left -= tokens;
  const auto second = static_cast<size_t>(seen / kSecond);
  if (second >= seen_.output_per_second.size()) seen_.output_per_second.resize(second + 1);
  seen_.output_per_second[second] += static_cast<double>(tokens);
}

void Cell::end(pd::RequestKey key, sched::FinishReason reason, int64_t cached_tokens) {
  clients_[key - 1].cached = cached_tokens * options_.grain;
  const bool whole = reason == sched::FinishReason::kLength;
  leave_router(key, whole ? router::Outcome::kServed : router::Outcome::kFailed);
  finish(key, whole ? nullptr : sched::finish_reason_name(reason));
}

// The turn is over, well where there is no `failure`: its conversation goes on, or the next one has its place.
void Cell::finish(pd::RequestKey key, const char* failure) {
  Client& c = clients_[key - 1];
  c.failure = failure;
  c.ended = now_ + options_.message;
  --at_once_;
  const load::Conversation& conversation = workload_[static_cast<size_t>(c.conversation)];
  if (failure == nullptr && c.turn + 1 < std::ssize(conversation.turns)) {
    const Time at = c.ended + time_of(conversation.turns[static_cast<size_t>(c.turn) + 1].delay_s);
    return put(at, [this, conversation = c.conversation, next = c.turn + 1] { turn(conversation, next, now_); });
  }
  --conversations_;
  if (!arrivals_.empty()) {
    if (held_taken_ == held_.size()) return;
    const auto [held, since] = held_[held_taken_++];
    return begin(held, since);
  }
  if (next_ == workload_.size()) return;
  const size_t next = next_++;
  ++conversations_;  // it has the place from now on
  put(c.ended, [this, next] { turn(static_cast<int64_t>(next), 0, now_); });
}

void Cell::send(const pd::Envelope& envelope) {
  put(now_ + options_.message, [this, envelope] {
    // A decode instance that shares nothing tells its requests apart by a salt of their own, which prefill must not see: it does share.
    if (auto copy = envelope; !options_.share_on_decode && std::holds_alternative<pd::Order>(copy.body)) {
      std::get<pd::Order>(copy.body).salt = 0;
      return at(copy.to.instance).node->receive(copy);
    }
    at(envelope.to.instance).node->receive(envelope);
  });
}

// Writes of one instance follow each other on its link.
void Cell::post(pd::Process from, const pd::Write& w) {
  Instance& sender = at(from.instance);
  const double bytes =
      static_cast<double>(std::ssize(w.from_pages) * options_.grain) * options_.page_bytes + (w.from_slot >= 0 ? options_.slot_bytes : 0);
  sender.link_free = std::max(sender.link_free, now_) + time_of(bytes / options_.link);
  put(sender.link_free, [this, from, job = w.job, to = w.to, notice = w.notice] {
    send({from, to, 0, notice});
    static_cast<PrefillNode&>(*at(from.instance).node).written(job, notice.part, true, 0);
  });
}

Time Cell::cycle_time(pd::Process process, const sched::Cycle& cycle) {
  Instance& n = at(process.instance);
  const auto grain = static_cast<double>(options_.grain);
  CycleLoad load;
  for (const sched::Rows& r : cycle.rows) {
    const double position = grain * r.position, count = grain * r.count;
    if (r.ids_begin == sched::kDrawnToken) {
      load.decoding += 1;
      load.decode_context += position;
    } else {
      load.prompt_tokens += count;
      load.prompt_past += count * (position + count / 2);
    }
  }
  const Time time = std::max<Time>(time_of(n.shape->cost->seconds(load, cycles_)), 1);
  n.busy += time;
  n.running += load.decoding;
  ++n.cycles;
  return time;
}

CellResult Cell::result() const {
  CellResult out = seen_;
  std::vector<size_t> before{0};  // turns before each conversation
  for (const load::Conversation& c : workload_) before.push_back(before.back() + c.turns.size());
  out.records.resize(before.back());
  std::vector<bool> asked(before.back());
  for (const Client& c : clients_) {
    const size_t at = before[static_cast<size_t>(c.conversation)] + static_cast<size_t>(c.turn);
    const load::Turn& t = workload_[static_cast<size_t>(c.conversation)].turns[static_cast<size_t>(c.turn)];
    asked[at] = true;
    load::Record& r = out.records[at];
    r.conversation = c.conversation;
    r.turn = c.turn;
    r.asked_input = r.input_tokens = t.prompt.tokens();
    r.asked_output = t.output_tokens;
    r.output_tokens = c.tokens;
    r.cached_tokens = std::min(c.cached, r.input_tokens);
    r.intended = seconds_of(c.intended);
    r.sent = seconds_of(c.sent);
    r.end = seconds_of(c.ended);
    if (c.tokens > 0) r.chunks.push_back(seconds_of(c.first));
    if (c.last > c.first) r.chunks.push_back(seconds_of(c.last));
    if (c.failure != nullptr) r.failure = r.message = c.failure;
  }
  for (size_t i = before.back(); i-- > 0;)
    if (!asked[i]) out.records.erase(out.records.begin() + static_cast<std::ptrdiff_t>(i));  // a turn before it failed
  for (const Instance& n : instances_) {
    const sched::Metrics& m = n.node->scheduler().metrics();
    Use u{.prefills = n.prefills, .decodes = n.decodes, .busy = now_ > 0 ? seconds_of(n.busy) / seconds_of(now_) : 0, .cycles = n.cycles};
    u.requests = m.admissions;
    u.prompt_tokens = m.prompt_tokens * options_.grain;
    u.cached_tokens = m.tokens_matched_state * options_.grain;
    u.retractions = m.retractions_to_host + m.retractions_recomputed;
    u.mean_running = n.cycles > 0 ? n.running / static_cast<double>(n.cycles) : 0;
    if (const auto* d = dynamic_cast<const DecodeNode*>(n.node.get())) {
      out.orders += d->end().metrics().orders;
      out.retried_orders += d->end().metrics().retried;
      u.cached_tokens = d->end().metrics().pages_matched * cache::kPageUnits * options_.grain;
      u.prompt_tokens = u.cached_tokens + d->end().metrics().pages_ordered * cache::kPageUnits * options_.grain;
    }
    out.instances.push_back(u);
  }
  return out;
}

}  // namespace baton::sim
