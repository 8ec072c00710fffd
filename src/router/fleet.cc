#include "router/fleet.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/check.h"

namespace baton::router {

std::string_view name_of(Health health) {
  switch (health) {
    case Health::kUnknown: return "unknown";
    case Health::kReady: return "ready";
    case Health::kUnready: return "unready";
    case Health::kDown: return "down";
  }
  return "";
}

std::string_view name_of(Role role) {
  switch (role) {
    case Role::kUnified: return "unified";
    case Role::kPrefill: return "prefill";
    case Role::kDecode: return "decode";
  }
  return "";
}

Figures read_figures(std::string_view answer) {
  const auto number = [answer](std::string_view name) {
    const size_t at = answer.find(fmt::format("\"{}\":", name));
    if (at == std::string_view::npos) return 0.0;
    const std::string text(answer.substr(at + name.size() + 3, 24));
    const double value = std::strtod(text.c_str(), nullptr);
    constexpr double kMost = 1e12;
    return value >= 0 && value < kMost ? value : 0.0;
  };
  return {.running = static_cast<int64_t>(number("running")),
          .waiting = static_cast<int64_t>(number("waiting")),
          .cached = std::min(number("cached"), 1.0),
          .hand_over_ms = number("hand_over_ms")};
}

Fleet::Fleet(FleetOptions options) : options_(options), instances_(kMostInstances), affinity_(options.affinity_entries) {}

Instance& Fleet::at(int instance) {
  BATON_CHECK(instance >= 0 && instance < kMostInstances && known(instance));
  return instances_[static_cast<size_t>(instance)];
}

int Fleet::find(const std::string& url) const {
  for (int i = 0; i < kMostInstances; ++i)
    if (instances_[static_cast<size_t>(i)].url == url) return i;
  return -1;
}

Result<int> Fleet::place(const std::string& url, TimeMs now) {
  for (int i = 0; i < kMostInstances; ++i) {
    if (known(i)) continue;
    instances_[static_cast<size_t>(i)] = {.url = url, .breaker = Breaker(options_.breaker), .answered = now};
    return i;
  }
  return Error{.kind = Error::Kind::kExhausted,
               .message = fmt::format("There are {} instances already, and a router holds no more; {} is left out.", kMostInstances, url)};
}

Result<int> Fleet::add(const std::string& url, TimeMs now, Role role) {
  if (find(url) >= 0) return Error{.message = fmt::format("The instance {} is given twice.", url)};
  BATON_ASSIGN(const int i, place(url, now));
  at(i).role = role;
  return i;
}

Result<int> Fleet::register_instance(const std::string& url, uint64_t epoch, int32_t load, TimeMs now) {
  int i = find(url);
  if (i < 0) {
    BATON_ASSIGN(i, place(url, now));
    at(i).registered = true;
  }
  Instance& instance = at(i);
  instance.leaving = false;
  instance.heard = now;
  instance.elsewhere = std::max(0, load - instance.open);
  if (instance.epoch != 0 && instance.epoch != epoch) affinity_.forget(i);  // a new process has an empty cache
  instance.epoch = epoch;
  return i;
}

void Fleet::leave(const std::string& url) {
  const int i = find(url);
  if (i < 0) return;
  at(i).leaving = true;
  free_if_done(i);
}

void Fleet::free_if_done(int i) {
  const Instance& instance = at(i);
  if (!instance.leaving || !instance.registered || instance.open > 0) return;
  affinity_.forget(i);
  instances_[static_cast<size_t>(i)] = {};
}

void Fleet::probed(int i, bool ready, std::string why, TimeMs now) {
  Instance& instance = at(i);
  // What was cached is gone with the process, most likely, when it comes back from where it could not be reached.
  if (instance.health == Health::kDown && instance.epoch == 0) affinity_.forget(i);
  instance.health = ready ? Health::kReady : Health::kUnready;
  instance.why = ready ? std::string() : std::move(why);
  instance.answered = now;
}

void Fleet::unreachable(int i, std::string why, bool gone, TimeMs now) {
  Instance& instance = at(i);
  instance.health = Health::kDown;
  instance.why = std::move(why);
  // Its connections are broken, too, and their requests hear of it by themselves.
  if (gone) instance.answered = now;
}

void Fleet::slept(int64_t ms) {
  for (Instance& i : instances_) {
    i.answered += ms;
    i.heard += ms;
  }
}

std::vector<int> Fleet::lost(TimeMs now) {
  std::vector<int> lost;
  for (int i = 0; i < kMostInstances; ++i) {
    if (!known(i)) continue;
    Instance& instance = at(i);
    if (instance.registered && !instance.leaving && now - instance.heard > options_.heard_ms && instance.health != Health::kReady)
      instance.leaving = true;
    if (instance.open > 0 && instance.health == Health::kDown && now - instance.answered >= options_.silence_ms) lost.push_back(i);
    free_if_done(i);
  }
  return lost;
}

bool Fleet::takes(const Instance& i, TimeMs now) const {
  return !i.url.empty() && i.role != Role::kPrefill && !i.leaving && i.health == Health::kReady && i.breaker.lets(now);
}

std::optional<Choice> Fleet::choose(std::span<const uint64_t> blocks, std::span<const int> tried, uint64_t chance, TimeMs now) const {
  std::array<int, kMostInstances> able{};
  size_t count = 0;
  int64_t least = INT64_MAX;
  for (int i = 0; i < kMostInstances; ++i) {
    const Instance& instance = instances_[static_cast<size_t>(i)];
    if (!takes(instance, now) || std::find(tried.begin(), tried.end(), i) != tried.end()) continue;
    able[count++] = i;
    least = std::min(least, instance.load());
  }
  if (count == 0) return std::nullopt;
  const int64_t most = least + std::max(options_.slack, static_cast<int64_t>(options_.slack_share * static_cast<double>(least)));
  std::array<int32_t, kMostInstances> matched{};
  affinity_.match(blocks, matched);
  // The longest match among those that are not much fuller than the emptiest; then the least load; then chance.
  std::array<int, kMostInstances> best{};
  size_t equals = 0;
  for (size_t k = 0; k < count; ++k) {
    const int i = able[k];
    const int64_t load = instances_[static_cast<size_t>(i)].load();
    if (load > most) continue;
    if (equals > 0) {
      const auto b = static_cast<size_t>(best[0]);
      const int32_t more = matched[static_cast<size_t>(i)] - matched[b];
      const int64_t fuller = load - instances_[b].load();
      if (more < 0 || (more == 0 && fuller > 0)) continue;
      if (more > 0 || fuller < 0) equals = 0;
    }
    best[equals++] = i;
  }
  const int chosen = best[chance % equals];
  return Choice{.instance = chosen, .matched = matched[static_cast<size_t>(chosen)]};
}

void Fleet::sent(int i, std::span<const uint64_t> blocks, int32_t matched, TimeMs now) {
  Instance& instance = at(i);
  ++instance.open;
  ++instance.sent;
  instance.blocks += static_cast<int64_t>(blocks.size());
  instance.blocks_matched += matched;
  instance.breaker.sent(now);
  affinity_.record(blocks, i);
}

void Fleet::answering(int i) { at(i).breaker.succeeded(); }

void Fleet::ended(int i, Outcome outcome, double jitter, TimeMs now) {
  Instance& instance = at(i);
  BATON_CHECK(instance.open > 0);
  --instance.open;
  switch (outcome) {
    case Outcome::kServed:
      ++instance.served;
      if (instance.breaker.state() != Breaker::State::kOpen) instance.breaker.succeeded();
      break;
    case Outcome::kFailed:
      ++instance.failed;
      instance.breaker.failed(now, jitter);
      break;
    case Outcome::kTurnedAway:
      ++instance.turned_away;
      instance.breaker.undecided();
      break;
    case Outcome::kUndecided: instance.breaker.undecided(); break;
  }
  free_if_done(i);
}

int Fleet::ready(TimeMs now) const {
  return static_cast<int>(std::count_if(instances_.begin(), instances_.end(), [&](const Instance& i) { return takes(i, now); }));
}

std::string Fleet::ready_prefills() const {
  std::string out;
  for (const Instance& i : instances_)
    if (i.role == Role::kPrefill && !i.leaving && i.health == Health::kReady) out.append(out.empty() ? "" : ",").append(i.url);
  return out;
}

int32_t Fleet::open() const {
  int32_t sum = 0;
  for (const Instance& i : instances_) sum += i.open;
  return sum;
}

}  // namespace baton::router
