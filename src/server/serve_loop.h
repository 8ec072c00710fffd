// A server's life from its first request to its end, as signals have it.
//
//   SIGTERM, SIGINT   no new connections; what is under way may end within shutdown-timeout. A second one ends everything at once
//   SIGHUP            keys and certificates are read again
#pragma once

#include "server/server.h"

namespace baton::server {

// For the main thread, before any other is started: these signals are then left to serve_until_told().
void block_signals();
// True if everything under way had ended by itself.
bool serve_until_told(Server& server);

}  // namespace baton::server
