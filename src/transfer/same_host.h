// The transport between processes of one machine and one user, without any library: the sender writes into the receiver's memory by a
// system call (process_vm_writev), and tells it over a Unix socket. Where there is no NIXL, for demos and tests; it is as fast as a copy.
//
// An introduction is of use only on the machine that it comes from. The system must let processes of a user write into each other, which
// containers and security modules may forbid; meet() finds out.
//
// Threads: see remote.h. progress() copies on the calling thread; a thread of its own hears notices. What others write when leave() is
// called may still land: whoever leaves ends soon.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "transfer/remote.h"

namespace baton::transfer {

class SameHost final : public RemoteTransport {
 public:
  SameHost() = default;
  ~SameHost() override { leave(); }

  Status enter(Agent self, Memory memory) override;
  void leave() override;
  Status post(Part part) override;
  void progress() override;
  uint64_t checksum(std::span<const int32_t> pages, int32_t slot, uint32_t slot_parts) const override;

  std::vector<std::byte> introduction() const override;
  Result<Agent> meet(std::span<const std::byte> introduction) override;
  void part_with(Agent agent) override;

 private:
  struct Peer;
  struct Posted {
    Part part;
    std::chrono::steady_clock::time_point at;
  };
  std::optional<Failure> carry(const Part& part, const Peer& peer, uint64_t& checksum);
  void hear();
  void close_all();

  std::string socket_name_;  // in the abstract namespace
  std::deque<Posted> posted_;

  mutable std::mutex mutex_;  // what follows
  bool entered_ = false;
  std::map<uint32_t, std::shared_ptr<const Peer>> peers_;  // by instance: the last process of it that was met
  std::vector<Arrival> incoming_;
  int64_t meetings_ = 0, meetings_failed_ = 0, garbled_ = 0;

  int listening_ = -1, wake_ = -1;  // of the thread
  std::thread thread_;
};

}  // namespace baton::transfer
