// The instances behind a router: which there are, how they are, which of them gets a request. A state machine: time and chance come in.
//
// A place in the table is an instance's number for as long as it is known. One that leaves keeps it until its last request has ended.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "router/affinity.h"
#include "router/breaker.h"

namespace baton::router {

enum class Health : uint8_t {
  kUnknown,  // not asked yet
  kReady,
  kUnready,  // answers, and takes no requests: it loads, drains or is stuck
  kDown,     // cannot be reached, or does not answer
};
std::string_view name_of(Health health);

enum class Role : uint8_t { kUnified, kPrefill, kDecode };
std::string_view name_of(Role role);

// How a request ended at an instance, in what it says about the instance.
enum class Outcome : uint8_t {
  kServed,      // a whole answer, of whatever status: a request that fails everywhere must not take all instances away
  kFailed,      // no answer, or a broken one
  kTurnedAway,  // full or draining: well, but not now
  kUndecided,   // the client went, or the router gave it up
};

struct FleetOptions {
  BreakerOptions breaker = {};
  int64_t silence_ms = 5000;  // without an answer to a probe; then what runs there is given up
  int64_t heard_ms = 10'000;  // a registered instance that does not repeat itself for so long leaves
  int64_t slack = 4;          // requests that an instance may have above the least loaded one for the sake of its cache,
  double slack_share = 0.1;   // or so much of that one's load, if that is more
  size_t affinity_entries = size_t{1} << 18;
};

// What an instance said of itself with its last probe.
struct Figures {
  int64_t running = 0, waiting = 0;
  double cached = 0;        // share of its prompts that its cache had
  double hand_over_ms = 0;  // from the order of a prompt to its landing, in the mean; of decode instances
};
// From the answer of a probe; what is not there is 0.
Figures read_figures(std::string_view answer);

struct Instance {
  std::string url = {};
  Role role = Role::kUnified;  // prefill instances get no requests: decode instances are told of them
  bool registered = false;     // has come by itself, and leaves by itself
  bool leaving = false;        // gets nothing more
  uint64_t epoch = 0;          // of its process, where it says so; another one means another process
  Health health = Health::kUnknown;
  std::string why = {};  // of a health that is not kReady
  Breaker breaker = Breaker();
  int32_t open = 0;       // requests of this router there
  int32_t elsewhere = 0;  // what it has from others, by its own word
  TimeMs answered = 0;    // the last probe that it answered, or when it was added
  TimeMs heard = 0;       // its last registration
  int64_t sent = 0, served = 0, failed = 0, turned_away = 0;
  int64_t blocks_matched = 0, blocks = 0;  // of prompts sent there

  Figures figures = {};

  int64_t load() const { return int64_t{open} + elsewhere; }
};

struct Choice {
  int instance = 0;
  int32_t matched = 0;  // blocks that it probably has
};

class Fleet {
 public:
  explicit Fleet(FleetOptions options = {});

  // One of a list. Fails when there is no place, or it is there already.
  Result<int> add(const std::string& url, TimeMs now, Role role = Role::kUnified);
  // An instance says that it is there, again and again. Fails when there is no place.
  Result<int> register_instance(const std::string& url, uint64_t epoch, int32_t load, TimeMs now);
  // It says that it goes.
  void leave(const std::string& url);

  // The answer of a probe: ready, or not and why.
  void probed(int instance, bool ready, std::string why, TimeMs now);
  void told(int instance, const Figures& figures) { at(instance).figures = figures; }
  // It could not be reached, or did not answer in time. `gone`: nothing listens there.
  void unreachable(int instance, std::string why, bool gone, TimeMs now);
  // The router itself did not run for so long: nobody else was silent meanwhile.
  void slept(int64_t ms);
  // Of those that are silent for too long or have left; the requests that run there are to be given up.
  std::vector<int> lost(TimeMs now);

  // Nobody where no instance may have it. `tried` are those that failed it already; `chance` decides between equals.
  std::optional<Choice> choose(std::span<const uint64_t> blocks, std::span<const int> tried, uint64_t chance, TimeMs now) const;
  // A request goes to an instance; ended() follows exactly once.
  void sent(int instance, std::span<const uint64_t> blocks, int32_t matched, TimeMs now);
  // It has begun to answer as one that is well does; what the breaker wanted to know.
  void answering(int instance);
  void ended(int instance, Outcome outcome, double jitter, TimeMs now);

  // By place; those without a URL are free.
  std::span<const Instance> instances() const { return instances_; }
  bool known(int instance) const { return !instances_[static_cast<size_t>(instance)].url.empty(); }
  // Of those that requests are sent to.
  int ready(TimeMs now) const;
  // URLs of prefill instances that are ready, separated by commas.
  std::string ready_prefills() const;
  int32_t open() const;

 private:
  Instance& at(int instance);
  bool takes(const Instance& i, TimeMs now) const;
  int find(const std::string& url) const;
  Result<int> place(const std::string& url, TimeMs now);
  void free_if_done(int instance);

  const FleetOptions options_;
  std::vector<Instance> instances_;
  Affinity affinity_;
};

}  // namespace baton::router
