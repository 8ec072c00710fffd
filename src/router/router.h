// The router: a listener for clients, a loop of calls to instances, and between them the requests on their way.
//
//   listener's threads   find the endpoint, hash the prompt's blocks, hand the request on
//   the loop's thread    owns everything else: fleet, requests, probes, counters
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "http/listener.h"
#include "router/hub.h"

namespace baton::router {

class Router {
 public:
  // Listens when it returns.
  static Result<std::unique_ptr<Router>> start(const Settings& settings, const std::string& version);
  // Ends everything at once.
  ~Router();

  uint16_t port() const { return listener_->port(); }
  const Settings& settings() const { return hub_->settings; }
  // No new connections; /readyz says no. Requests that are under way go on.
  void begin_drain();
  // Waits for them; true if all have ended. Called again, it goes on waiting.
  bool drain(std::chrono::steady_clock::time_point deadline);
  // What still runs ends with an error that says so.
  void cut_all();

 private:
  Status add(const std::string& url, Role role);
  Router(const Settings& settings, std::string version);
  Status open();
  void handle(std::shared_ptr<http::Exchange> exchange);
  void handle_own(const std::shared_ptr<http::Exchange>& exchange);
  void tick();
  void probe(int instance);

  const std::string version_;
  const std::shared_ptr<Hub> hub_;
  std::atomic<bool> draining_{false};
  std::atomic<uint64_t> requests_{0};
  uint64_t number_key_ = 0;
  // The loop's.
  std::array<bool, kMostInstances> probing_{};
  TimeMs ticked_ = 0;

  std::unique_ptr<http::Listener> listener_;  // closed first
};

}  // namespace baton::router
