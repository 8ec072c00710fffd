// The transport between processes: one-sided writes by NIXL, over whatever its UCX finds between the two (shared memory, NVLink,
// InfiniBand, TCP). The library is loaded when the first of these enters.
//
// Threads: as RemoteTransport says. Each has one thread of its own that does all with the library: it connects, posts, asks how far writes
// are, computes checksums and takes in notices, so that nobody who posts waits for any of it.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <thread>

#include "transfer/remote.h"
#include "transfer/route.h"

namespace baton::transfer {

inline constexpr const char* kNixlTransport = "nixl";  // as an introduction names it

struct NixlOptions {
  int32_t device = -1;  // the GPU that pages and slots are on; -1: main memory
  // Of memory that the processor cannot read; needed where `device` is set. On the transport's thread, and on that of checksum().
  std::function<uint64_t(std::span<const Extent>)> checksum = {};

  // Each wait has an end.
  std::chrono::milliseconds meet_limit{5'000};
  std::chrono::milliseconds part_limit{60'000};  // a part that takes longer fails, and its receiver is connected anew
  std::chrono::milliseconds leave_limit{5'000};  // for what is under way; then it is left behind
  // How often the thread looks for what came: while something is under way or came a moment ago, and otherwise.
  std::chrono::microseconds busy_poll{50};
  std::chrono::microseconds idle_poll{500};

  int64_t damage_every = 0;  // for tests: of so many parts one has wrong bytes when it arrives, and the notice says nothing of it; 0: none
};

struct Introduction;
class NixlMail;

class Nixl final : public RemoteTransport {
 public:
  explicit Nixl(NixlOptions options = {});
  ~Nixl() override;

  // kUnsupported: the library is not there, or does not do what is declared of it (nixl_self_test.h).
  Status enter(Agent self, Memory memory) override;
  void leave() override;
  Status post(Part part) override;
  void progress() override;
  uint64_t checksum(std::span<const int32_t> pages, int32_t slot, uint32_t slot_parts) const override;

  std::vector<std::byte> introduction() const override;
  Result<Agent> meet(std::span<const std::byte> introduction) override;
  void part_with(Agent agent) override;

 private:
  Status check_peer(const Introduction& other) const;  // under the mail's mutex

  NixlOptions options_;
  const std::shared_ptr<NixlMail> mail_;  // shared with the thread, which outlives this if the library does not come back
  std::thread thread_;
};

}  // namespace baton::transfer
