#include "sched/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "cache/page_name.h"

namespace baton::sched {
namespace {

Error invalid(std::string message) { return Error{Error::Kind::kInvalid, std::move(message)}; }

Status check_tokens(const std::vector<int32_t>& tokens, const char* field, int64_t vocabulary) {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocabulary)
      return invalid(fmt::format("{}[{}] is {}; ids go from 0 to {}", field, i, tokens[i], vocabulary - 1));
  return {};
}

// Negated comparisons: a NaN fails them all.
Status check_sampling(const Sampling& s, int64_t vocabulary) {
  const auto within = [](float x, float low, float high) { return x >= low && x <= high; };
  constexpr float kMost = std::numeric_limits<float>::max();
  if (!within(s.temperature, 0, kMost)) return invalid(fmt::format("temperature is {}; it must be a number from 0 up", s.temperature));
  if (!within(s.top_p, 0, 1) || s.top_p == 0) return invalid(fmt::format("top_p is {}; it must be above 0 and at most 1", s.top_p));
  if (s.top_k < 0) return invalid(fmt::format("top_k is {}; it must be 0 (all) or more", s.top_k));
  if (!within(s.min_p, 0, 1)) return invalid(fmt::format("min_p is {}; it must be from 0 to 1", s.min_p));
  if (!within(s.repetition_penalty, 0, kMost) || s.repetition_penalty == 0)
    return invalid(fmt::format("repetition_penalty is {}; it must be a number above 0", s.repetition_penalty));
  if (!within(s.frequency_penalty, -kMost, kMost))
    return invalid(fmt::format("frequency_penalty is {}; it must be a number", s.frequency_penalty));
  if (!within(s.presence_penalty, -kMost, kMost))
    return invalid(fmt::format("presence_penalty is {}; it must be a number", s.presence_penalty));
  if (s.logprobs < -1 || s.logprobs > vocabulary)
    return invalid(fmt::format("logprobs is {}; it must be -1 (none) to {}, the vocabulary", s.logprobs, vocabulary));
  if (s.prompt_logprobs < -1 || s.prompt_logprobs > kMostPromptLogprobs)
    return invalid(fmt::format("prompt_logprobs is {}; it must be -1 (none) to {}", s.prompt_logprobs, kMostPromptLogprobs));
  for (const auto& [token, bias] : s.logit_bias) {
    if (token < 0 || token >= vocabulary)
      return invalid(fmt::format("logit_bias is for token {}; ids go from 0 to {}", token, vocabulary - 1));
    if (std::isnan(bias)) return invalid(fmt::format("logit_bias of token {} is not a number", token));
  }
  return {};
}

}  // namespace

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone: return "none";
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kDeadline: return "deadline";
    case FinishReason::kNotFinite: return "not finite";
    case FinishReason::kNothingAllowed: return "nothing allowed";
    case FinishReason::kConstraint: return "constraint failed";
    case FinishReason::kFailed: return "failed";
  }
  return "?";
}

Result<std::unique_ptr<Scheduler>> Scheduler::create(const SchedulerOptions& o) {
  const int64_t held = int64_t{o.memory.pages} * cache::kPageUnits;
  if (o.memory.slots < 1) return invalid("no slots; at least one request must be able to run");
  if (o.context_tokens < 2)
    return invalid(fmt::format("a context of {} tokens; it must hold at least a prompt token and an output token", o.context_tokens));
  if (held < o.context_tokens)
    return invalid(
        fmt::format("{} pages of {} tokens do not hold one sequence of {}", o.memory.pages, cache::kPageUnits, o.context_tokens));
  if (o.prefill_tokens < 1 || o.growth_tokens < 1 || o.snapshot_tokens < 1 || o.max_waiting < 1 || o.vocabulary < 1)
    return invalid("prefill_tokens, growth_tokens, snapshot_tokens, max_waiting and vocabulary must be positive");
  if (o.drafts < 0 || o.drafts > speculate::kMostDrafts || o.look_ahead < 0 || o.look_ahead > 1)
    return invalid(
        fmt::format("drafts is {} and look_ahead {}; they may be up to {} and 1", o.drafts, o.look_ahead, speculate::kMostDrafts));
  return std::unique_ptr<Scheduler>(new Scheduler(o));
}

Scheduler::Scheduler(const SchedulerOptions& options) : options_(options), memory_(options.memory) {
  const auto slots = static_cast<size_t>(options.memory.slots);
  const auto context_pages = static_cast<size_t>((options.context_tokens + cache::kPageUnits - 1) / cache::kPageUnits);
  running_.reserve(slots);
  draining_.reserve(slots);
  prefills_.reserve(slots);
  grants_.reserve(slots);
  spare_.reserve(slots);
  path_.resize(context_pages);
  pages_scratch_.reserve(context_pages * 2);
  pending_edits_.reserve(slots + context_pages);
  events_.reserve(slots * (4 + static_cast<size_t>(options.drafts)));
  for (Planned& p : planned_cycles_) {
    p.ends.reserve(slots);
    p.shots.reserve(slots);
    p.forks.reserve(slots);
    p.draws.reserve(slots);
    p.scores.reserve(slots);
  }
  update_gauges();
}

void Scheduler::Planned::clear() {
  ends.clear();
  shots.clear();
  forks.clear();
  draws.clear();
  scores.clear();
}

Status Scheduler::check(const RequestSpec& spec, const SchedulerOptions& o) {
  if (spec.prompt.empty()) return invalid("prompt is empty; give at least one token");
  const auto prompt = static_cast<int64_t>(spec.prompt.size());
  if (prompt >= o.context_tokens)
    return invalid(fmt::format("prompt has {} tokens and the context holds {}, of which one must be left to generate; shorten it", prompt,
                               o.context_tokens));
  BATON_TRY(check_tokens(spec.prompt, "prompt", o.vocabulary));
  BATON_TRY(check_tokens(spec.stop_tokens, "stop_tokens", o.vocabulary));
  BATON_TRY(check_sampling(spec.sampling, o.vocabulary));
  if (spec.max_tokens != kUnlimited && spec.max_tokens < 1)
    return invalid(fmt::format("max_tokens is {}; it must be at least 1", spec.max_tokens));
  if (spec.max_tokens != kUnlimited && spec.max_tokens > o.context_tokens - prompt)
    return invalid(fmt::format("max_tokens is {} and the prompt has {} tokens; together they exceed the context of {}", spec.max_tokens,
                               prompt, o.context_tokens));
  if (spec.min_tokens < 0) return invalid(fmt::format("min_tokens is {}; it must not be negative", spec.min_tokens));
  if (spec.max_tokens != kUnlimited && spec.min_tokens > spec.max_tokens)
    return invalid(fmt::format("min_tokens is {} and max_tokens {}; the one must not exceed the other", spec.min_tokens, spec.max_tokens));
  if (spec.choices < 1 || spec.choices > o.memory.slots)
    return invalid(fmt::format("choices is {}; it must be 1 to {}, the requests that run at once", spec.choices, o.memory.slots));
  if (spec.prompt_only && spec.choices != 1) return invalid(fmt::format("choices is {}; a prompt alone has one", spec.choices));
  if ((spec.salt & cache::kPrivateSalt) != 0) return invalid("salt needs its highest bit to be zero");
  return {};
}

Status Scheduler::submit(RequestId id, RequestSpec spec, Time now) {
  BATON_CHECK_MSG(!requests_.contains(id), "request {} was submitted twice", id);
  if (never_run_ >= options_.max_waiting) {
    ++metrics_.refused;
    return Error{Error::Kind::kExhausted, fmt::format("{} requests wait already, as many as may; try again later", never_run_)};
  }
  Request& r = add_request(id, std::move(spec), now);
  // Together the choices need the prompt's pages once, and their own. Where even an empty pool lacks these, each goes by itself.
  const Sequence& first = *r.choices.front();
  const int64_t own = pages_wanted(first) - shared_prompt_pages(r);
  r.together = shared_prompt_pages(r) + r.spec.choices * own <= options_.memory.pages;
  for (const auto& choice : r.choices) {
    if (r.together && choice->choice > 0) break;
    waiting_.insert(choice.get());
    ++never_run_;
  }
  update_gauges();
  return {};
}

Request& Scheduler::add_request(RequestId id, RequestSpec spec, Time now) {
  auto request = std::make_unique<Request>();
  Request& r = *request;
  r.id = id;
  r.spec = std::move(spec);
  r.arrival = arrivals_++;
  r.salt = r.spec.cache_prompt ? r.spec.salt : cache::kPrivateSalt | r.arrival;
  r.unfinished = r.present = r.spec.choices;
  const int64_t room = options_.context_tokens - r.prompt_tokens();
  const int64_t max_drawn = r.spec.prompt_only ? 1 : r.spec.max_tokens == kUnlimited ? room : std::min(room, r.spec.max_tokens);
  for (int32_t c = 0; c < r.spec.choices; ++c) {
    auto s = std::make_unique<Sequence>();
    s->request = &r;
    s->choice = c;
    s->waiting_since = now;
    s->max_drawn = max_drawn;
    r.choices.push_back(std::move(s));
  }
  if (r.spec.deadline != kNever) deadlines_.emplace(r.spec.deadline, id);
  ++metrics_.submitted;
  requests_.emplace(id, std::move(request));
  return r;
}

void Scheduler::land(RequestId id, RequestSpec spec, LandedPrompt prompt, Time now) {
  BATON_CHECK_MSG(!requests_.contains(id), "request {} was submitted twice", id);
  BATON_CHECK(spec.choices == 1 && !spec.prompt_only && prompt.slot >= 0);
  Request& r = add_request(id, std::move(spec), now);
  BATON_CHECK(std::ssize(prompt.pages) * cache::kPageUnits >= r.prompt_tokens());
  Sequence& s = *r.choices.front();
  give_buffers(s);
  s.pages.assign(prompt.pages.begin(), prompt.pages.end());
  s.tree_pages = prompt.tree_pages;
  s.node = prompt.node;
  s.slot = prompt.slot;
  s.computed = s.completed_rows = r.prompt_tokens();
  s.cached_tokens = prompt.cached_tokens;
  s.snapshot_pages = static_cast<int32_t>(s.pages.size());
  s.state = State::kDecode;
  s.waited = prompt.waited;
  s.has_run = s.landed = true;
  s.reset_ring = prompt.reset_ring;
  metrics_.prompt_tokens += r.prompt_tokens();
  running_.push_back(&s);
  landed_.push_back(&s);
  update_gauges();
}

Scheduler::Holding Scheduler::holding(RequestId id) const {
  const auto found = requests_.find(id);
  BATON_CHECK(found != requests_.end() && found->second->spec.prompt_only);
  const Sequence& s = *found->second->choices.front();
  return {s.slot, s.pages, s.cached_tokens};
}

void Scheduler::let_go(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  finish_all(*found->second, FinishReason::kStop);
  sweep();
  update_gauges();
}

int32_t Scheduler::growing() const {
  return static_cast<int32_t>(std::count_if(running_.begin(), running_.end(), [this](const Sequence* s) { return will_grow(*s); }));
}

void Scheduler::cancel(RequestId id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  finish_all(*found->second, FinishReason::kCancelled);
  sweep();
  update_gauges();
}

void Scheduler::stop(RequestId id, int32_t choice) {
  const auto found = requests_.find(id);
  if (found == requests_.end() || choice < 0 || choice >= found->second->spec.choices) return;
  Sequence* s = found->second->choices[static_cast<size_t>(choice)].get();
  if (s == nullptr || s->state == State::kDraining || s->known().size() == found->second->spec.prompt.size()) return;
  finish(*s, FinishReason::kStop);
  sweep();
  update_gauges();
}

const RequestSpec* Scheduler::find(RequestId id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : &found->second->spec;
}

uint64_t Scheduler::tree_salt(const Sequence& s) const { return cache::tree_salt(s.request->salt, s.known().front(), options_.look_ahead); }

int64_t Scheduler::pages_wanted(const Sequence& s) const {
  const int64_t known = std::max(std::ssize(s.known()), s.computed);
  const int64_t rows = std::min(rows_limit(s), known + options_.growth_tokens);
  return (rows + cache::kPageUnits - 1) / cache::kPageUnits;
}

void Scheduler::edit_table(const Sequence& s, int32_t first, std::vector<TableEdit>& edits) const {
  for (auto i = static_cast<size_t>(first); i < s.pages.size(); ++i) edits.push_back({s.slot, static_cast<int32_t>(i), s.pages[i]});
}

void Scheduler::update_gauges() {
  Metrics& m = metrics_;
  m.waiting = static_cast<int64_t>(waiting_.size());
  m.retracted = m.waiting - never_run_;
  m.prefilling = m.decoding = 0;
  for (const Sequence* s : running_) (s->state == State::kDecode ? m.decoding : m.prefilling) += 1;
  m.draining = static_cast<int64_t>(draining_.size());
  m.slots = memory_.slots.capacity();
  m.slots_free = memory_.slots.free_count();
  m.pages = memory_.pages.capacity();
  m.pages_free = memory_.pages.free_count();
  m.pages_held = memory_.pages.held_count();
  m.pages_cached = memory_.pages.cached_count();
  m.snapshots = memory_.snapshots.pool().capacity();
  m.snapshots_cached = memory_.snapshots.pool().cached_count();
  m.snapshots_held = memory_.snapshots.pool().held_count();
  m.host_slots = memory_.host_slots.capacity();
  m.host_slots_free = memory_.host_slots.free_count();
  m.host_pages = memory_.host_pages.capacity();
  m.host_pages_free = memory_.host_pages.free_count();
  m.pages_evicted = memory_.evicted_pages();
}

void Scheduler::check_invariants(const Others& others) const {
  memory_.check_invariants();
  int64_t held = memory_.retiring_pages() + others.pages;
  int64_t slots = others.slots;
  int64_t host_slots = 0;
  int32_t fresh = 0;
  const auto count = [&](const Sequence& s) {
    held += static_cast<int64_t>(s.pages.size()) - s.tree_pages;
    slots += s.slot >= 0 ? 1 : 0;
    host_slots += s.host.exists() ? 1 : 0;
    // Cycles that are launched behind the last token bring a sequence that has ended nothing.
    BATON_CHECK(static_cast<int64_t>(s.pages.size()) * cache::kPageUnits >= s.computed || s.state == State::kWaiting ||
                s.state == State::kAwaitFork || s.state == State::kDraining);
    BATON_CHECK(s.drawn <= s.max_drawn || s.state == State::kDraining);
    BATON_CHECK(s.drafts >= 0 && (s.drafts == 0 || in_flight() > 0));
    for (int32_t i = 0; i < s.tree_pages; ++i) BATON_CHECK(memory_.pages.owner(s.pages[static_cast<size_t>(i)]) == cache::Owner::kCached);
    for (auto i = static_cast<size_t>(s.tree_pages); i < s.pages.size(); ++i)
      BATON_CHECK(memory_.pages.owner(s.pages[i]) == cache::Owner::kHeld);
    BATON_CHECK(s.node == (s.tree_pages > 0 ? s.pages[static_cast<size_t>(s.tree_pages) - 1] : cache::kRoot));
  };
  for (const Sequence* s : running_) {
    BATON_CHECK(s->slot >= 0 && s->state != State::kWaiting && s->state != State::kDraining);
    count(*s);
  }
  for (const Sequence* s : draining_) {
    BATON_CHECK(s->state == State::kDraining && s->last_cycle > memory_.completed());
    count(*s);
  }
  for (const Sequence* s : waiting_) {
    BATON_CHECK(s->state == State::kWaiting && s->slot < 0 && s->pages.empty());
    fresh += s->has_run ? 0 : 1;
    count(*s);
  }
  BATON_CHECK_MSG(held == memory_.pages.held_count(), "{} pages are accounted for, {} are held", held, memory_.pages.held_count());
  BATON_CHECK(fresh == never_run_);
  BATON_CHECK(slots <= memory_.slots.held_count() && host_slots <= memory_.host_slots.held_count());
  if (in_flight() == 0) {
    BATON_CHECK(slots == memory_.slots.held_count() && host_slots == memory_.host_slots.held_count());
    BATON_CHECK(memory_.retiring_pages() == 0 && memory_.snapshots.pool().held_count() == 0);
  }
}

}  // namespace baton::sched
