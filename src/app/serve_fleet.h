// What an instance of `serve` has of others: who it is among them, how pages get there, and the post.
#pragma once

#include <memory>

#include "base/result.h"
#include "engine/local_engine.h"
#include "fleet/post.h"
#include "server/settings.h"
#include "transfer/remote.h"

namespace baton::app {

struct FleetParts {
  std::unique_ptr<transfer::RemoteTransport> transport;
  std::unique_ptr<fleet::Post> post;  // null: the instance is unified
};

// Makes them, and has the engine's options say so.
Result<FleetParts> join_fleet(const server::Settings& settings, engine::LocalOptions& options);

}  // namespace baton::app
