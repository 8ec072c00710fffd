// The transport between instances in one process: copies, by the same lists that a network card would be given.
//
// Threads: one at a time. progress() copies on the calling thread.
#pragma once

#include <deque>
#include <map>

#include "transfer/transport.h"

namespace baton::transfer {

struct InProcessMetrics {
  int64_t parts = 0, failed = 0;
  int64_t page_bytes = 0;  // that crossed
  int64_t slot_bytes = 0;
};

class InProcess final : public Transport {
 public:
  Status enter(Agent agent, Memory memory) override;
  void leave(Agent agent) override;
  Status post(const Part& part) override;
  void progress() override;
  std::span<const Arrival> arrivals() const override { return arrivals_; }
  std::span<const Completion> completions() const override { return completions_; }
  uint64_t checksum(Agent agent, std::span<const int32_t> pages, int32_t slot, uint32_t slot_parts) const override;

  const InProcessMetrics& metrics() const { return metrics_; }

 private:
  // What one process sends another of each object.
  struct Route {
    std::vector<Slice> page;
    std::vector<std::pair<Slice, uint32_t>> slot;  // with the part that it belongs to
  };
  static Route route(const Memory& from, const Memory& to);
  void carry(const Part& part, Completion& completion);

  std::map<Agent, Memory> agents_;
  std::map<std::pair<Agent, Agent>, Route> routes_;
  std::deque<Part> posted_;
  std::vector<Arrival> arrivals_;
  std::vector<Completion> completions_;
  InProcessMetrics metrics_;
};

}  // namespace baton::transfer
