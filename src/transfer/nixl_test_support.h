// For tests of the transport over NIXL: whether it can run here, and other processes to write to.
//
// Threads: the test's.
#pragma once

#include <sys/types.h>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transfer/transport.h"

namespace baton::transfer {

// What keeps NIXL from running here, or nothing. ctest takes the message for a skipped test (src/transfer/CMakeLists.txt).
std::string nixl_lacking();

std::string hex(std::span<const std::byte> bytes);
std::vector<std::byte> unhex(std::string_view text);

// Pages that nixl_peer has, and how it fills them.
inline constexpr int64_t kPeerPageBytes = 64 << 10;
inline constexpr int32_t kPeerPages = 64;
Memory peer_memory(std::vector<std::byte>& pages, int64_t page_bytes = kPeerPageBytes, int32_t count = kPeerPages);
// Part number i to it, or from it, of n pages: from its first half to the second half of the other's, so that what is sent never changes.
Part peer_part(Agent to, int64_t i, int32_t n, int32_t pages = kPeerPages);
// Where an arrival says that it went.
std::vector<int32_t> noticed_pages(const Arrival& arrival);

// nixl_peer as a process, which ends with this one.
class PeerProcess {
 public:
  PeerProcess(const char* program, const std::vector<std::string>& arguments);
  ~PeerProcess();  // kills it
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  void say(const std::string& line);
  // Its next line; the program ends if none comes.
  std::string hear();
  void signal(int number);
  void kill();  // at once, and waits for its end
  std::vector<std::byte> introduction;

 private:
  pid_t pid_ = -1;
  int to_ = -1, from_ = -1;
  std::string heard_;
};

}  // namespace baton::transfer
