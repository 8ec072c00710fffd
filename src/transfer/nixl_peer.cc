// The other process of tests and of the benchmark of the transport over NIXL. It enters, says its introduction, and does what it is told,
// a line each:
//
//   nixl_peer INSTANCE EPOCH [PAGE_BYTES PAGES [FINGERPRINT]]
//
//   meet HEX                        -> met INSTANCE, or the error
//   write INSTANCE EPOCH PARTS N    -> wrote RIGHT FAILED: so many parts of N pages each
//   flood INSTANCE EPOCH N          -> flooding, and then writes parts of N pages until it is killed
//   await N                         -> got RIGHT WRONG: when N parts have arrived in all, by their checksums
//   leave                           -> left LEFT_BEHIND
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "transfer/nixl.h"
#include "transfer/nixl_test_support.h"
#include "transfer/test_watchdog.h"

namespace baton::transfer {
namespace {

struct Told {
  int64_t right = 0, wrong = 0, written = 0, failed = 0;
};

int run(int argc, char** argv) {
  const auto number = [&](int i, int64_t otherwise) { return argc > i ? std::strtoll(argv[i], nullptr, 10) : otherwise; };
  const Agent self{static_cast<uint32_t>(number(1, 2)), static_cast<uint64_t>(number(2, 1))};
  const int64_t page_bytes = number(3, kPeerPageBytes);
  const auto pages = static_cast<int32_t>(number(4, kPeerPages));
  std::vector<std::byte> bytes(static_cast<size_t>(page_bytes * pages));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 13 + self.instance + i / 4096);
  Memory memory = peer_memory(bytes, page_bytes, pages);
  memory.fingerprint = static_cast<uint64_t>(number(5, static_cast<int64_t>(memory.fingerprint)));
  Nixl transport;
  if (const Status entered = transport.enter(self, memory); !entered.ok()) {
    std::fprintf(stderr, "nixl_peer: %s\n", entered.error().message.c_str());
    return 1;
  }
  std::cout << hex(transport.introduction()) << std::endl;

  Told told;
  const auto step = [&] {
    transport.progress();
    for (const Arrival& a : transport.arrivals()) ++(a.checksum == transport.checksum(noticed_pages(a), -1, 0) ? told.right : told.wrong);
    for (const Completion& c : transport.completions()) ++(c.ok ? told.written : told.failed);
  };
  const auto post = [&](Agent to, int64_t part, int32_t n) {
    if (const Status posted = transport.post(peer_part(to, part, n, pages)); !posted.ok()) ++told.failed;
  };
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string what, text;
    Agent to;
    int64_t parts = 0, n = 0;
    words >> what;
    if (what == "meet") {
      words >> text;
      const Result<Agent> met = transport.meet(unhex(text));
      std::cout << (met.ok() ? "met " + std::to_string(met->instance) : met.error().message) << std::endl;
    } else if (what == "write") {
      words >> to.instance >> to.epoch >> parts >> n;
      const int64_t before = told.written + told.failed;
      for (int64_t i = 0; i < parts; ++i) post(to, i, static_cast<int32_t>(n));
      wait_until([&] { return step(), told.written + told.failed >= before + parts; }, "completions");
      std::cout << "wrote " << told.written << " " << told.failed << std::endl;
    } else if (what == "flood") {
      words >> to.instance >> to.epoch >> n;
      std::cout << "flooding" << std::endl;
      for (int64_t i = 0;; ++i) {
        post(to, i, static_cast<int32_t>(n));
        wait_until([&] { return step(), transport.metrics().waiting < 16; }, "room");
      }
    } else if (what == "await") {
      words >> parts;
      wait_until([&] { return step(), told.right + told.wrong >= parts; }, "arrivals");
      std::cout << "got " << told.right << " " << told.wrong << std::endl;
    } else if (what == "leave") {
      transport.leave();
      std::cout << "left " << transport.metrics().left_behind << std::endl;
    }
  }
  return 0;
}

}  // namespace
}  // namespace baton::transfer

int main(int argc, char** argv) { return baton::transfer::run(argc, argv); }
