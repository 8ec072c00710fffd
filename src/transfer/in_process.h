// The transport between instances in one process: copies, by the same lists that a network card would be given.
//
// Threads: one at a time for an instance; those of several meet in the exchange, which has a lock. progress() copies on the calling thread.
#pragma once

#include <deque>
#include <map>
#include <mutex>

#include "transfer/route.h"
#include "transfer/transport.h"

namespace baton::transfer {

class InProcess;

// Where the instances of a process meet; outlives them.
class Exchange {
 private:
  friend class InProcess;
  std::mutex mutex_;
  std::map<Agent, InProcess*> here_;
  std::map<std::pair<Agent, Agent>, Route> routes_;
};

class InProcess final : public Transport {
 public:
  explicit InProcess(Exchange& exchange) : exchange_(exchange) {}
  ~InProcess() override { leave(); }

  Status enter(Agent self, Memory memory) override;
  void leave() override;
  Status post(Part part) override;
  void progress() override;
  uint64_t checksum(std::span<const int32_t> pages, int32_t slot, uint32_t slot_parts) const override;

 private:
  Completion carry(const Part& part, const Memory& to, const Route& route);

  Exchange& exchange_;
  std::deque<Part> posted_;
  std::vector<Arrival> incoming_;  // under the exchange's lock
};

}  // namespace baton::transfer
