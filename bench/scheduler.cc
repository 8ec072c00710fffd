// bench_scheduler: time to plan and to complete a cycle at 512 requests that come and go on a device that takes no time. One thread, and
// the same requests in every round: a cycle's least time over the rounds is what it costs where nobody else has the processor.
//
//     build/release/bin/bench_scheduler [ROUNDS]
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <random>

#include "sched/scheduler.h"

namespace {

using namespace baton;

constexpr int32_t kRunning = 512;
constexpr int64_t kPrompt = 2000;
constexpr int64_t kGenerate = 400;
constexpr uint64_t kVocabulary = 154'880;

struct Step {
  int64_t plan_ns = 0, complete_ns = 0;
};

int64_t thread_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

std::vector<Step> run() {
  sched::SchedulerOptions o;
  o.context_tokens = 65'536;
  o.memory = {.pages = static_cast<int32_t>(kRunning * ((kPrompt + kGenerate) / 64 + 8) + 1024), .slots = kRunning, .snapshots = 64};
  o.vocabulary = kVocabulary;
  o.prefill_tokens = 8192;
  o.max_waiting = 1 << 20;
  const auto scheduler = std::move(*sched::Scheduler::create(o));
  std::mt19937_64 random(3);
  std::vector<int32_t> stem(kPrompt / 2);
  for (int32_t& t : stem) t = static_cast<int32_t>(random() % kVocabulary);
  for (sched::RequestId id = 1; id <= kRunning * 8; ++id) {
    sched::RequestSpec r;
    r.prompt = stem;
    while (std::ssize(r.prompt) < kPrompt) r.prompt.push_back(static_cast<int32_t>(random() % kVocabulary));
    r.max_tokens = kGenerate / 2 + static_cast<int64_t>(random() % (kGenerate / 2));
    if (!scheduler->submit(id, std::move(r), 0).ok()) std::abort();
  }
  std::vector<Step> steps;
  sched::Cycle cycle;
  std::array<std::vector<int32_t>, sched::kCyclesInFlight> drawn;
  int64_t launched = 0, done = 0, now = 0;
  while (!scheduler->idle()) {
    const int64_t begin = thread_ns();
    while (scheduler->in_flight() < sched::kCyclesInFlight && scheduler->plan(++now, cycle)) {
      std::vector<int32_t>& tokens = drawn[static_cast<size_t>(launched++) % drawn.size()];
      tokens.resize(cycle.draws.size());
      for (size_t i = 0; i < tokens.size(); ++i)
        tokens[i] = static_cast<int32_t>((static_cast<uint64_t>(cycle.draws[i].position) * 2654435761U + i) % kVocabulary);
    }
    const int64_t planned = thread_ns();
    scheduler->complete(drawn[static_cast<size_t>(done++) % drawn.size()]);
    steps.push_back({planned - begin, thread_ns() - planned});
    scheduler->clear_events();
  }
  return steps;
}

template <class Ns>
void print(const char* what, const std::vector<Step>& steps, const Ns& ns) {
  std::vector<int64_t> all;
  for (const Step& s : steps) all.push_back(ns(s));
  std::sort(all.begin(), all.end());
  const auto quantile = [&all](double q) {
    return static_cast<double>(all[static_cast<size_t>(q * static_cast<double>(all.size() - 1))]) / 1e3;
  };
  fmt::print("{:<10} median {:.1f} us, 90th percentile {:.1f}, 99th {:.1f}\n", what, quantile(0.5), quantile(0.9), quantile(0.99));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 9;
  std::vector<Step> least = run();
  for (int r = 1; r < rounds; ++r) {
    const std::vector<Step> steps = run();
    for (size_t i = 0; i < least.size(); ++i) {
      least[i].plan_ns = std::min(least[i].plan_ns, steps.at(i).plan_ns);
      least[i].complete_ns = std::min(least[i].complete_ns, steps.at(i).complete_ns);
    }
  }
  fmt::print("{} cycles of {} requests, each cycle's least of {} rounds\n", least.size(), kRunning, rounds);
  print("plan", least, [](const Step& s) { return s.plan_ns; });
  print("complete", least, [](const Step& s) { return s.complete_ns; });
  print("together", least, [](const Step& s) { return s.plan_ns + s.complete_ns; });
  return 0;
}
