// bench_tree: time to match a prefix of 1,000 pages in a tree of a million, cold in the processor's caches.
//
//     build/release/bin/bench_tree [PAGES]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "base/random.h"
#include "cache/prefix_tree.h"

namespace {

using namespace baton;
using namespace baton::cache;

constexpr int64_t kRun = 1000;

// The units of page i of run r: all different.
void fill(std::vector<Unit>& units, uint64_t run) {
  for (size_t i = 0; i < units.size(); i += 2) {
    const PhiloxBlock block = philox(run, {static_cast<uint32_t>(i), 0, 0, 0});
    units[i] = block[0];
    units[i + 1] = block[1];
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int32_t pages = argc > 1 ? std::atoi(argv[1]) : 1000000;
  const int64_t runs = pages / kRun;
  if (runs < 1) {
    fmt::print(stderr, "usage: bench_tree [PAGES]   at least {}\n", kRun);
    return 2;
  }
  IdPool pool(pages);
  PrefixTree tree(pool);
  std::vector<Unit> units(kRun * kPageUnits);
  for (int64_t r = 0; r < runs; ++r) {
    fill(units, static_cast<uint64_t>(r));
    Node at = kRoot;
    for (int64_t p = 0; p < kRun; ++p) {
      int32_t page = -1;
      if (!pool.take({&page, 1})) return 1;
      at = tree.extend(at, 0, std::span<const Unit, kPageUnits>(&units[static_cast<size_t>(p * kPageUnits)], kPageUnits), page);
    }
  }
  std::vector<double> times;
  std::vector<Node> out(kRun);
  for (int64_t i = 0; i < std::min<int64_t>(runs, 200); ++i) {
    fill(units, static_cast<uint64_t>(i * 7919 % runs));
    const auto start = std::chrono::steady_clock::now();
    const int32_t matched = tree.match(0, units, out);
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    if (matched != kRun) {
      fmt::print(stderr, "bench_tree: matched {} of {} pages\n", matched, kRun);
      return 1;
    }
  }
  std::sort(times.begin(), times.end());
  fmt::print("{} pages, match of {}: median {:.1f} us, 99th percentile {:.1f} us\n", pages, kRun, times[times.size() / 2],
             times[times.size() * 99 / 100]);
  return 0;
}
