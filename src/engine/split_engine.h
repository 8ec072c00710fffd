// Decode and prefill instances of one checkpoint in one process, handing prompts over: the roles of a deployment without processes or a
// network between them. For tests, demos and `baton generate --pd`.
//
// Every instance is a whole engine with weights, memory and threads of its own. Messages are calls, writes are copies.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/local_engine.h"
#include "transfer/in_process.h"
#include "transfer/remote.h"

namespace baton::engine {

struct SplitOptions {
  int32_t decodes = 1;
  int32_t prefills = 1;
  // Nobody loses patience with the rest of his own process, which computes as long as it takes, unless this says so.
  std::optional<pd::DecodeOptions> waits = {};
  // How often a message arrives; null: once. From any engine's thread. For tests.
  std::function<int(std::span<const std::byte> message)> copies = {};
  // Instead of copies within the process. What such a transport writes is not held back when an instance is closed: wait_idle() comes
  // first.
  std::function<std::unique_ptr<transfer::RemoteTransport>()> transport = {};
};

class SplitEngine {
 public:
  // `options` are those of each instance, budget included.
  static Result<std::unique_ptr<SplitEngine>> open(const model::Checkpoint& checkpoint, const LocalOptions& options,
                                                   const SplitOptions& split);
  // Cancels what is left, and waits for it.
  ~SplitEngine();

  // Requests go to these.
  LocalEngine& decode(int32_t i = 0) { return *decodes_.at(static_cast<size_t>(i)); }
  LocalEngine& prefill(int32_t i = 0) { return *prefills_.at(static_cast<size_t>(i)); }
  // Nothing is left to do, with anybody.
  void wait_idle();

 private:
  class Post;
  SplitEngine();

  transfer::Exchange exchange_;
  std::unique_ptr<Post> post_;
  std::vector<std::unique_ptr<transfer::Transport>> transports_;
  std::vector<std::unique_ptr<LocalEngine>> prefills_;
  std::vector<std::unique_ptr<LocalEngine>> decodes_;  // first to go
};

}  // namespace baton::engine
