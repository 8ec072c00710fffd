// Writes between two processes over NIXL: bench_transfer [PAGES [PAGE_KB [ROUNDS [JSON]]]], beside nixl_peer in the same folder.
//
// A part of PAGES pages is posted ROUNDS times, one behind the other, and timed from post() to its completion, which is what a hand-over
// waits for; the checksum that both ends compute is part of it on this side. Beside it: a copy of the same bytes within this process.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <vector>

#include "transfer/nixl.h"
#include "transfer/nixl_test_support.h"
#include "transfer/test_watchdog.h"

namespace {

using namespace baton;
using namespace baton::transfer;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

struct Times {
  std::vector<double> all;
  void add(double seconds) { all.push_back(seconds); }
  double median() {
    std::ranges::sort(all);
    return all[all.size() / 2];
  }
  double best() const { return *std::ranges::min_element(all); }
};

int run(int argc, char** argv) {
  const auto number = [&](int i, int64_t otherwise) { return argc > i ? std::strtoll(argv[i], nullptr, 10) : otherwise; };
  const int64_t count = number(1, 1000), page_bytes = number(2, 256) << 10, rounds = number(3, 15);
  if (count < 1 || count > 1 << 20 || page_bytes < 1024 || rounds < 1) {
    std::fprintf(stderr, "bench_transfer: it takes [PAGES [PAGE_KB [ROUNDS [JSON]]]], each at least 1\n");
    return 2;
  }
  const auto pages = static_cast<int32_t>(2 * count);
  std::vector<std::byte> bytes(static_cast<size_t>(page_bytes * pages));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 13 + i / 4096);
  Nixl nixl;
  auto start = Clock::now();
  if (const Status entered = nixl.enter({1, 1}, peer_memory(bytes, page_bytes, pages)); !entered.ok()) {
    std::fprintf(stderr, "bench_transfer: %s\n", entered.error().message.c_str());
    return 1;
  }
  const double entering = seconds_since(start);
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "nixl_peer";
  PeerProcess peer(program.c_str(), {"2", "1", std::to_string(page_bytes), std::to_string(pages)});
  start = Clock::now();
  if (const Result<Agent> met = nixl.meet(peer.introduction); !met.ok()) {
    std::fprintf(stderr, "bench_transfer: %s\n", met.error().message.c_str());
    return 1;
  }
  const double meeting = seconds_since(start);
  Times whole, sums, copy;
  for (int64_t round = 0; round < rounds; ++round) {
    start = Clock::now();
    if (!nixl.post(peer_part({2, 1}, 0, static_cast<int32_t>(count), pages)).ok()) return 1;
    wait_until([&] { return nixl.progress(), !nixl.completions().empty(); }, "a completion");
    if (!nixl.completions().front().ok) return 1;
    whole.add(seconds_since(start));
    start = Clock::now();
    std::vector<int32_t> sent(static_cast<size_t>(count));
    std::iota(sent.begin(), sent.end(), 0);
    static_cast<void>(nixl.checksum(sent, -1, 0));
    sums.add(seconds_since(start));
    start = Clock::now();
    std::memcpy(bytes.data() + page_bytes * count, bytes.data(), static_cast<size_t>(page_bytes * count));
    copy.add(seconds_since(start));
  }
  peer.say("await " + std::to_string(rounds));
  const std::string got = peer.hear();
  nixl.leave();
  const double gigabytes = static_cast<double>(page_bytes * count) * 1e-9;
  const double write = whole.median() - sums.median();
  std::printf("%lld pages of %lld KB between two processes, %lld times; the receiver %s (right, wrong checksums)\n",
              static_cast<long long>(count), static_cast<long long>(page_bytes >> 10), static_cast<long long>(rounds), got.c_str());
  std::printf("enter %.0f ms, meet %.1f ms\n", entering * 1e3, meeting * 1e3);
  std::printf("post to completion   %7.2f ms  %6.2f GB/s (best %.2f)\n", whole.median() * 1e3, gigabytes / whole.median(),
              gigabytes / whole.best());
  std::printf("  without checksum   %7.2f ms  %6.2f GB/s\n", write * 1e3, gigabytes / write);
  std::printf("copy in one process  %7.2f ms  %6.2f GB/s\n", copy.median() * 1e3, gigabytes / copy.median());
  if (argc > 4) {
    std::ofstream json(argv[4]);
    json << fmt::format(
        R"({{"pages":{},"page_bytes":{},"rounds":{},"enter_s":{:.4f},"meet_s":{:.5f},"part_s":{:.6f},"part_gb_per_s":{:.3f},)"
        R"("best_gb_per_s":{:.3f},"checksum_s":{:.6f},"write_gb_per_s":{:.3f},"copy_gb_per_s":{:.3f}}})"
        "\n",
        count, page_bytes, rounds, entering, meeting, whole.median(), gigabytes / whole.median(), gigabytes / whole.best(), sums.median(),
        gigabytes / write, gigabytes / copy.median());
    if (!json.flush()) {
      std::fprintf(stderr, "bench_transfer: %s cannot be written\n", argv[4]);
      return 1;
    }
  }
  return got == fmt::format("got {} 0", rounds) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) { return run(argc, argv); }
