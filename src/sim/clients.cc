// The clients of a world, and the router before the instances: what is asked for, where it goes, what has to come back.
#include <algorithm>

#include "sim/world.h"

namespace baton::sim {

void World::next_request() {
  const double mean = 3600.0 / climate_.requests_per_hour;  // seconds
  // Arrivals come in clumps: sometimes several at once.
  const double wait = arrivals_.chance(0.2) ? 0 : mean * 1.25 * 2 * arrivals_.unit();
  put(now_ + static_cast<Time>(wait * static_cast<double>(kSecond)), -1, 0, [this] {
    if (resting_) return;
    const int32_t number = requests_++;
    next_request();
    const auto& only = options_.only_requests;
    if (only.has_value() && std::find(only->begin(), only->end(), number) == only->end()) return;
    Random r(options_.seed, 6, static_cast<uint64_t>(number));
    const auto key = static_cast<pd::RequestKey>(number) + 1;
    Client& c = clients_[key];
    c.spec = draw_request(r, c);
    c.since = now_;
    for (const int32_t t : c.spec.prompt) c.prefix = behind(c.prefix, t);
    ++tally_.requests;
    if (r.chance(climate_.chance[static_cast<size_t>(Fault::kCancel)])) {
      put(now_ + r.below(3000) * kMillisecond, -1, 0, [this, key] {
        const auto found = clients_.find(key);
        if (found == clients_.end()) return;
        ++tally_.faults[static_cast<size_t>(Fault::kCancel)];
        found->second.cancelled = true;
        if (const pd::Process where = found->second.where; where.epoch != 0)
          later(where, now_, [this, where, key] { static_cast<DecodeNode&>(*at(index(where.instance)).node).cancel(key); });
      });
    }
    submit(key);
  });
}

// Prompts share beginnings: a few stems, cut and continued.
sched::RequestSpec World::draw_request(Random& r, Client& c) const {
  sched::RequestSpec s;
  const std::vector<int32_t>& stem = stems_[static_cast<size_t>(r.below(std::ssize(stems_)))];
  const int64_t longest = climate_.longest_prompt_pages * cache::kPageUnits;
  const int64_t shared = r.chance(0.5) ? std::ssize(stem) : r.below(std::ssize(stem) + 1);
  s.prompt.assign(stem.begin(), stem.begin() + shared);
  const int64_t more = r.chance(0.15) ? 0 : r.chance(0.5) ? r.below(20) : r.below(200);
  for (int64_t i = 0; i < more && std::ssize(s.prompt) < longest; ++i) s.prompt.push_back(static_cast<int32_t>(r.below(kVocabulary)));
  if (s.prompt.empty()) s.prompt.push_back(1);
  s.max_tokens = r.between(1, climate_.most_output);
  s.salt = r.chance(0.05) ? 1 : 0;
  s.cache_prompt = !r.chance(0.05);
  c.hurried = r.chance(climate_.chance[static_cast<size_t>(Fault::kDeadline)]);
  s.deadline = c.hurried ? r.between(10, r.chance(0.5) ? 300 : 4000) * kMillisecond
                         : sched::kNever;  // from when it arrives; the instance adds its clock
  return s;
}

// To some instance that is up. Who finds none tries again, and then gives up.
void World::submit(pd::RequestKey key) {
  Client& c = clients_.at(key);
  c.where = {};
  std::vector<int32_t> up;
  for (int32_t i = 0; i < climate_.decodes; ++i)
    if (at(i).node != nullptr) up.push_back(i);
  constexpr int32_t kMostTries = 6;
  if (c.cancelled || (up.empty() && ++c.tries >= kMostTries)) {
    ++(c.cancelled ? tally_.cancelled : tally_.unserved);
    clients_.erase(key);
    return;
  }
  const auto again = [this, key] {
    if (clients_.contains(key)) submit(key);
  };
  if (up.empty()) return put(now_ + kSecond, -1, 0, again);
  const int32_t i = up[static_cast<size_t>(luck_.below(std::ssize(up)))];
  c.where = at(i).node->self();
  later(c.where, now_, [this, i, key] {
    const auto found = clients_.find(key);
    if (found == clients_.end()) return;
    if (found->second.hurried) ++tally_.faults[static_cast<size_t>(Fault::kDeadline)];
    if (static_cast<DecodeNode&>(*at(i).node).submit(key, found->second.spec, found->second.spec.deadline)) return;
    ++tally_.refused;
    clients_.erase(key);
    if (climate_.calm) fail("a request was refused although nothing was wrong");
  });
}

void World::token(pd::RequestKey key, int32_t token) {
  const auto found = clients_.find(key);
  if (found == clients_.end()) return fail(fmt::format("request {} got a token behind its end", key));
  Client& c = found->second;
  ++tally_.tokens;
  ++c.tokens;
  if (token != next_token(c.prefix)) fail(fmt::format("request {}: its token {} is not what follows its prompt", key, c.tokens));
  c.prefix = behind(c.prefix, token);
}

void World::end(pd::RequestKey key, sched::FinishReason reason, int64_t) {
  const auto found = clients_.find(key);
  if (found == clients_.end()) return fail(fmt::format("request {} ended twice", key));
  const Client& c = found->second;
  trace("request {} ends: {}, after {} tokens", key, sched::finish_reason_name(reason), c.tokens);
  switch (reason) {
    case sched::FinishReason::kLength:
      ++tally_.completed;
      if (c.tokens != c.spec.max_tokens) fail(fmt::format("request {} got {} of {} tokens", key, c.tokens, c.spec.max_tokens));
      break;
    case sched::FinishReason::kCancelled:
      ++tally_.cancelled;
      if (!c.cancelled) fail(fmt::format("request {} was cancelled by nobody", key));
      break;
    case sched::FinishReason::kDeadline:
      ++tally_.expired;
      if (!c.hurried) fail(fmt::format("request {} has no deadline, and passed it", key));
      break;
    default:
      ++tally_.failed;
      if (climate_.calm) fail(fmt::format("request {} failed although nothing was wrong", key));
  }
  clients_.erase(found);
}

// Before the first token a request can begin again; after it, its client gets an error.
void World::forget_clients_of(pd::Process process) {
  std::vector<pd::RequestKey> keys;
  for (const auto& [key, c] : clients_)
    if (c.where == process) keys.push_back(key);
  std::sort(keys.begin(), keys.end());
  for (const pd::RequestKey key : keys) {
    Client& c = clients_.at(key);
    constexpr int32_t kMostTries = 3;
    if (c.tokens > 0 || c.cancelled || ++c.tries > kMostTries) {
      ++tally_.lost;
      clients_.erase(key);
    } else {
      submit(key);
    }
  }
}

}  // namespace baton::sim
