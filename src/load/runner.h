// Sends a workload to a server and records what comes: one thread, all connections non-blocking.
//
// Closed loop (no arrivals): as many conversations at once as `concurrency` says, the next when one ends. Open loop: conversations begin
// at their arrivals, whatever the server does, and wait for a place if `concurrency` bounds them; the wait is part of their latencies.
#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "http/client.h"
#include "load/record.h"
#include "load/request_body.h"

namespace baton::load {

struct RunOptions {
  http::Url url = {};
  http::ClientTls tls = {};
  RequestOptions request = {};
  int64_t concurrency = 0;        // conversations at once; 0: no limit
  double concurrency_ramp_s = 0;  // the places open evenly over this time
  double time_limit_s = 0;        // nothing is sent after it; 0: no limit
  double silence_s = 600;         // without a byte of an answer it has failed
  // About ten times a second, with the requests that have ended. False: those under way are given up, and no more are sent.
  std::function<bool(int64_t ended)> on_progress = {};
};

// `arrivals` in seconds, one for each conversation, not decreasing, or none at all. An error only where nothing could be sent; what happens
// to single requests is in their records, which are in the order of the workload.
Result<Run> run(const Workload& workload, const std::vector<double>& arrivals, const RunOptions& options);

}  // namespace baton::load
