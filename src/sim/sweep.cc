#include "sim/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>

#include "base/check.h"

namespace baton::sim {
namespace {

// What the child tells: a line with the time and the number of mishaps and requests, then the violation.
void tell(int fd, const Outcome& o) {
  const std::string text = fmt::format("{} {} {}\n{}", o.at, o.mishap_count, o.request_count, o.violation);
  const char* p = text.data();
  for (size_t left = text.size(); left > 0;) {
    const ssize_t n = ::write(fd, p, left);
    if (n <= 0) return;
    p += n;
    left -= static_cast<size_t>(n);
  }
}

std::string read_all(int fd) {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n = 0; (n = ::read(fd, buffer.data(), buffer.size())) > 0;) text.append(buffer.data(), static_cast<size_t>(n));
  return text;
}

// Leaves out pieces of a list, large ones first (Zeller, Hildebrandt: "Simplifying and isolating failure-inducing input", 2002).
std::vector<int32_t> thin_out(std::vector<int32_t> list, const std::function<bool(const std::vector<int32_t>&)>& still_fails) {
  if (still_fails({}) || !still_fails(list)) return {};
  for (size_t piece = (list.size() + 1) / 2; piece > 0 && !list.empty(); piece /= 2) {
    for (size_t first = 0; first < list.size();) {
      std::vector<int32_t> fewer = list;
      const auto begin = fewer.begin() + static_cast<std::ptrdiff_t>(first);
      fewer.erase(begin, begin + static_cast<std::ptrdiff_t>(std::min(piece, list.size() - first)));
      if (still_fails(fewer))
        list = std::move(fewer);
      else
        first += piece;
    }
  }
  return list;
}

}  // namespace

Outcome run_apart(const WorldOptions& options) {
  std::array<int, 2> said{}, shouted{};
  BATON_CHECK(::pipe(said.data()) == 0 && ::pipe(shouted.data()) == 0);
  std::fflush(nullptr);
  const pid_t child = ::fork();
  BATON_CHECK(child >= 0);
  if (child == 0) {
    ::dup2(shouted[1], STDERR_FILENO);
    tell(said[1], World(options).run());
    std::fflush(stdout);
    ::_exit(0);
  }
  ::close(said[1]);
  ::close(shouted[1]);
  const std::string text = read_all(said[0]);
  std::string error = read_all(shouted[0]);
  ::close(said[0]);
  ::close(shouted[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  Outcome o;
  int used = 0;
  if (std::sscanf(text.c_str(), "%ld %d %d\n%n", &o.at, &o.mishap_count, &o.request_count, &used) < 3) {
    while (!error.empty() && error.back() == '\n') error.pop_back();
    o.violation = error.empty() ? fmt::format("the process ended with status {}", status) : error;
    return o;
  }
  o.violation = text.substr(static_cast<size_t>(used));
  return o;
}

WorldOptions shrink(const WorldOptions& failing, Outcome& outcome, int32_t most_runs) {
  WorldOptions best = failing;
  best.trace = false;
  int32_t runs = 0;
  const auto still_fails = [&](const WorldOptions& o) {
    if (runs++ >= most_runs) return false;
    const Outcome now = run_apart(o);
    if (now.violation.empty()) return false;
    best = o;
    outcome = now;
    return true;
  };
  const Outcome first = run_apart(best);  // for its numbers
  if (first.violation.empty()) return best;
  outcome = first;
  WorldOptions o = best;
  o.deep_every = 1;
  still_fails(o);
  if (outcome.at > 0 && outcome.at < best.length) {
    o = best;
    o.length = outcome.at + kMillisecond;
    still_fails(o);
  } else {
    for (Time length = best.length / 2; length > kSecond; length /= 2) {
      o = best;
      o.length = length;
      if (!still_fails(o)) break;
    }
  }
  for (size_t f = 0; f < kFaultKinds; ++f) {
    o = best;
    o.without |= 1U << f;
    if (o.without != best.without) still_fails(o);
  }
  const auto numbers = [](int32_t count) {
    std::vector<int32_t> n(static_cast<size_t>(count));
    std::iota(n.begin(), n.end(), 0);
    return n;
  };
  thin_out(numbers(outcome.mishap_count), [&](const std::vector<int32_t>& some) {
    o = best;
    o.only_mishaps = some;
    return still_fails(o);
  });
  thin_out(numbers(outcome.request_count), [&](const std::vector<int32_t>& some) {
    o = best;
    o.only_requests = some;
    return still_fails(o);
  });
  return best;
}

std::string command_line(const WorldOptions& o) {
  std::string line = fmt::format("baton simulate --seed {}", o.seed);
  if (o.length != WorldOptions{}.length) line += fmt::format(" --until-ms {}", o.length / kMillisecond);
  if (o.deep_every != WorldOptions{}.deep_every) line += fmt::format(" --deep-every {}", o.deep_every);
  std::vector<std::string> without;
  for (size_t f = 0; f < kFaultKinds; ++f)
    if ((o.without >> f & 1U) != 0) without.emplace_back(name(static_cast<Fault>(f)));
  if (!without.empty()) line += fmt::format(" --without {}", fmt::join(without, ","));
  // An empty list is "none".
  const auto list = [](const std::vector<int32_t>& numbers) {
    return numbers.empty() ? std::string("none") : fmt::format("{}", fmt::join(numbers, ","));
  };
  if (o.only_mishaps.has_value()) line += " --only-mishaps " + list(*o.only_mishaps);
  if (o.only_requests.has_value()) line += " --only-requests " + list(*o.only_requests);
  return line;
}

namespace {

template <class State>
void list_transitions(const pd::Transitions<State>& moved, const char* what, std::string& seen, std::string& never) {
  for (size_t i = 0; i < pd::Transitions<State>::kStates; ++i)
    for (size_t j = 0; j < pd::Transitions<State>::kStates; ++j) {
      const auto from = static_cast<State>(i);
      const auto to = static_cast<State>(j);
      if (!pd::may_follow(from, to)) continue;
      const std::string line = fmt::format("{} {} -> {}", what, pd::name(from), pd::name(to));
      if (const int64_t n = moved.count(from, to); n > 0)
        seen += fmt::format("  {:<36}{:>12}\n", line, n);
      else
        never += line + "\n";
    }
}

}  // namespace

std::string missing(const Tally& t) {
  std::string seen, never;
  list_transitions(t.orders_moved, "order", seen, never);
  list_transitions(t.jobs_moved, "job", seen, never);
  for (size_t f = 0; f < kFaultKinds; ++f)
    if (t.faults[f] == 0) never += fmt::format("fault {}\n", name(static_cast<Fault>(f)));
  const std::array<std::pair<const char*, int64_t>, 7> rare = {{{"retraction", t.retractions},
                                                                {"eviction", t.evictions},
                                                                {"write into quarantine", t.late_landings},
                                                                {"write after the death of its sender", t.after_death},
                                                                {"order given again", t.retried},
                                                                {"checksum that differs", t.mismatches},
                                                                {"request lost with its instance", t.lost}}};
  for (const auto& [what, count] : rare)
    if (count == 0) never += fmt::format("{}\n", what);
  return never;
}

std::string describe(const Tally& t) {
  std::string text = fmt::format(
      "worlds {}, events {}, deep checks {}\n"
      "requests {}: completed {}, cancelled {}, expired {}, failed {}, refused {}, lost {}, unserved {}\n"
      "tokens {}, cycles {}, messages {}, writes {}, pages written {} (matched on decode {}, ordered {}), tokens reused on prefill {}\n"
      "orders {}, given again {}, retractions {}, evictions {}, peers restarted {}, stray messages {}, checksums that differ {}\n"
      "writes that landed in quarantine {}, after the death of their sender {}\n"
      "faults {}:",
      t.worlds, t.events, t.deep_checks, t.requests, t.completed, t.cancelled, t.expired, t.failed, t.refused, t.lost, t.unserved, t.tokens,
      t.cycles, t.messages, t.writes, t.pages_written, t.pages_matched, t.pages_ordered, t.reused_tokens, t.orders, t.retried,
      t.retractions, t.evictions, t.peers_restarted, t.stray_messages, t.mismatches, t.late_landings, t.after_death, t.fault_count());
  for (size_t f = 0; f < kFaultKinds; ++f) text += fmt::format(" {} {}", name(static_cast<Fault>(f)), t.faults[f]);
  text += "\n";
  std::string never;
  list_transitions(t.orders_moved, "order", text, never);
  list_transitions(t.jobs_moved, "job", text, never);
  return text;
}

}  // namespace baton::sim
