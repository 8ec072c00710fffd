#include "load/workload.h"

#include <algorithm>
#include <boost/random/discrete_distribution.hpp>
#include <boost/random/exponential_distribution.hpp>
#include <boost/random/mersenne_twister.hpp>
#include <boost/random/uniform_int_distribution.hpp>
#include <cmath>
#include <unordered_set>

namespace baton::load {
namespace {

// Boost's distributions, unlike the standard library's, are the same everywhere.
using Random = boost::random::mt19937_64;

int64_t draw_length(Random& random, int64_t length, const Range& range) {
  const auto low = std::llround(range.low * static_cast<double>(length));
  const auto high = std::llround(range.high * static_cast<double>(length));
  return std::max<int64_t>(1, low >= high ? low : boost::random::uniform_int_distribution<int64_t>(low, high)(random));
}

void shuffle(std::vector<int64_t>& list, Random& random) {
  for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[boost::random::uniform_int_distribution<size_t>(0, i - 1)(random)]);
}

std::vector<int64_t> groups_in_order(const SharedPrefixOptions& o, Random& random) {
  std::vector<int64_t> order;
  if (o.zipf > 0) {
    std::vector<double> weights;
    for (int64_t g = 1; g <= o.groups; ++g) weights.push_back(std::pow(static_cast<double>(g), -o.zipf));
    boost::random::discrete_distribution<int64_t> pick(weights);
    for (int64_t i = 0; i < o.groups * o.per_group; ++i) order.push_back(pick(random));
    if (o.ordered) std::sort(order.begin(), order.end());
    return order;
  }
  for (int64_t g = 0; g < o.groups; ++g) order.insert(order.end(), static_cast<size_t>(o.per_group), g);
  if (!o.ordered) shuffle(order, random);
  return order;
}

}  // namespace

Workload random_prompts(const RandomOptions& o) {
  Random random(o.seed);
  const uint64_t root = key_of(o.seed, 1);
  const Stretch prefix{.key = key_of(root, 0), .tokens = o.prefix};
  Workload out;
  for (int64_t i = 0; i < o.prompts; ++i) {
    Turn t;
    if (o.prefix > 0) t.prompt.stretches.push_back(prefix);
    t.prompt.stretches.push_back({.key = key_of(root, static_cast<uint64_t>(i) + 1), .tokens = draw_length(random, o.input, o.range)});
    t.output_tokens = draw_length(random, o.output, o.range);
    out.push_back({.turns = {std::move(t)}});
  }
  return out;
}

Workload shared_prefixes(const SharedPrefixOptions& o) {
  Random random(o.seed);
  const uint64_t prefixes = key_of(o.seed, 2), rest = key_of(o.seed, 3);
  uint64_t next = 0;
  Workload out;
  for (const int64_t group : groups_in_order(o, random)) {
    Conversation c;
    Prompt prompt;
    if (o.prefix > 0)
      prompt.stretches.push_back({.role = Role::kSystem, .key = key_of(prefixes, static_cast<uint64_t>(group)), .tokens = o.prefix});
    for (int64_t t = 0; t < o.turns; ++t) {
      prompt.stretches.push_back({.key = key_of(rest, next++), .tokens = draw_length(random, o.question, o.range)});
      const int64_t output = draw_length(random, o.output, o.range);
      c.turns.push_back({.prompt = prompt, .output_tokens = output});
      prompt.stretches.push_back({.role = Role::kAssistant, .key = key_of(rest, next++), .tokens = output});
    }
    out.push_back(std::move(c));
  }
  return out;
}

Workload agents(const AgentOptions& o) {
  Random random(o.seed);
  const uint64_t root = key_of(o.seed, 4);
  uint64_t next = 1;
  Workload out;
  for (int64_t a = 0; a < o.agents; ++a) {
    Conversation c;
    Prompt prompt;
    if (o.system > 0) prompt.stretches.push_back({.role = Role::kSystem, .key = key_of(root, 0), .tokens = o.system});
    for (int64_t t = 0; t < o.turns; ++t) {
      prompt.stretches.push_back({.key = key_of(root, next++), .tokens = draw_length(random, t == 0 ? o.task : o.result, o.range)});
      const int64_t output = draw_length(random, o.output, o.range);
      const double delay = t > 0 && o.delay_s > 0 ? boost::random::exponential_distribution<>(1 / o.delay_s)(random) : 0;
      c.turns.push_back({.prompt = prompt, .output_tokens = output, .delay_s = delay});
      prompt.stretches.push_back({.role = Role::kAssistant, .key = key_of(root, next++), .tokens = output});
    }
    out.push_back(std::move(c));
  }
  return out;
}

int64_t turns_of(const Workload& workload) {
  int64_t n = 0;
  for (const Conversation& c : workload) n += static_cast<int64_t>(c.turns.size());
  return n;
}

double shared_share(const Workload& workload) {
  std::unordered_set<uint64_t> seen;  // chains of stretches that a prompt began with
  int64_t shared = 0, all = 0;
  for (const Conversation& c : workload)
    for (const Turn& t : c.turns) {
      uint64_t chain = 0;
      bool matches = true;
      for (const Stretch& s : t.prompt.stretches) {
        chain = key_of(chain ^ s.key, static_cast<uint64_t>(s.tokens));
        matches = !seen.insert(chain).second && matches;
        if (matches) shared += s.tokens;
        all += s.tokens;
      }
    }
  return all > 0 ? static_cast<double>(shared) / static_cast<double>(all) : 0;
}

}  // namespace baton::load
