// bench_sample: time of one row of sampling on one thread, by what the row asks for.
//
//     build/release/bin/bench_sample [VOCABULARY]
//
// "peaked" logits are normal with deviation 2.5 and a few tokens far above, as a language model's are. "flat" ones are standard normal, the
// worst case: every token has a chance.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "base/random.h"
#include "ops/cpu/backend.h"

namespace {

using namespace baton;

struct Case {
  const char* name;
  ops::SamplingRow row;
};

std::vector<float> make_logits(int64_t n, float deviation, int64_t likely) {
  std::vector<float> logits(static_cast<size_t>(n));
  for (size_t i = 0; i < logits.size(); ++i) {
    const PhiloxBlock b = philox(1, {static_cast<uint32_t>(i), 0, 0, 0});
    logits[i] = deviation * std::sqrt(-2 * std::log(unit_interval(b[0]))) * std::cos(6.2831853F * unit_interval(b[1]));
  }
  for (int64_t i = 0; i < likely; ++i) logits[static_cast<size_t>((i * 7919 + 17) % n)] = 12 + 10 / static_cast<float>(i + 1);
  return logits;
}

// Median of many rows, in microseconds; each is another draw.
double time_row(cpu::CpuBackend& backend, const std::vector<float>& logits, ops::SamplingRow row) {
  const auto n = static_cast<int64_t>(logits.size());
  int32_t id = 0;
  float logprob = 0;
  std::vector<ops::TokenLogprob> top(20);
  const ops::SampleParams params{{logits.data(), DType::kF32, 1, n, n}, &row, &id, &logprob, top.data(), 20};
  const auto& op = backend.ops().sample;
  auto memory = backend.allocate(op.workspace_bytes(backend.executor(), params));
  if (!memory) {
    fmt::print(stderr, "bench_sample: {}\n", memory.error().message);
    std::exit(1);
  }
  std::vector<double> times;
  for (row.position = 0; row.position < 101; ++row.position) {
    Arena arena(memory->data(), memory->bytes());
    ops::Context context{&backend.executor(), &arena};
    const auto start = std::chrono::steady_clock::now();
    op.run(context, params);
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + 50, times.end());
  return times[50];
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t n = argc > 1 ? std::atoll(argv[1]) : 154880;
  if (n < 1024 || n > (1 << 24)) {
    fmt::print(stderr, "usage: bench_sample [VOCABULARY]   1024 to 16777216\n");
    return 2;
  }
  std::vector<ops::SeenToken> seen;
  for (int32_t i = 0; i < 1000; ++i) seen.push_back({i, 1, i % 4});
  std::vector<uint32_t> allowed(static_cast<size_t>((n + 31) / 32));
  for (size_t w = 0; w < allowed.size(); w += 7) allowed[w] = 0x10101;

  const auto with = [](float temperature, auto set) {
    ops::SamplingRow row{.temperature = temperature, .seed = 1};
    set(row);
    return row;
  };
  const auto penalise = [&](ops::SamplingRow& r) {
    r.repetition_penalty = 1.1F;
    r.presence_penalty = 0.5F;
    r.seen = seen.data();
    r.seen_count = static_cast<int32_t>(seen.size());
  };
  const Case cases[] = {
      {"greedy", with(0, [](auto&) {})},
      {"greedy, logprobs 20", with(0, [](auto& r) { r.logprobs = 20; })},
      {"greedy, penalties over 1,000 seen", with(0, penalise)},
      {"greedy, allowed mask", with(0, [&](auto& r) { r.allowed = allowed.data(); })},
      {"sampled", with(1, [](auto&) {})},
      {"min_p 0.05", with(1, [](auto& r) { r.min_p = 0.05F; })},
      {"top_k 50", with(1, [](auto& r) { r.top_k = 50; })},
      {"top_p 0.95", with(1, [](auto& r) { r.top_p = 0.95F; })},
      {"top_k 50, top_p 0.95", with(1, [](auto& r) { r.top_k = 50, r.top_p = 0.95F; })},
      {"top_k 50, top_p 0.95, penalties over 1,000 seen, logprobs 20", with(1,
                                                                            [&](auto& r) {
                                                                              penalise(r);
                                                                              r.top_k = 50;
                                                                              r.top_p = 0.95F;
                                                                              r.logprobs = 20;
                                                                            })},
  };
  cpu::CpuBackend backend({.threads = 1, .isa = cpu::detect_isa()});
  const std::vector<float> peaked = make_logits(n, 2.5F, 20);
  const std::vector<float> flat = make_logits(n, 1, 0);
  fmt::print("{:<62} {:>9} {:>9}   us a row, vocabulary of {}\n", "", "peaked", "flat", n);
  for (const Case& c : cases)
    fmt::print("{:<62} {:>9.0f} {:>9.0f}\n", c.name, time_row(backend, peaked, c.row), time_row(backend, flat, c.row));
  return 0;
}
