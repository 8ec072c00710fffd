// What all requests of a router share. All of it belongs to the thread of the client loop, but for what is atomic.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>

#include "http/client_loop.h"
#include "http/cors.h"
#include "http/secret.h"
#include "router/fleet.h"
#include "router/settings.h"

namespace baton::router {

class Relay;

enum class Ended : uint8_t { kAnswered, kClientGone, kNobody, kBroken, kCut, kCount };

struct Totals {
  std::array<int64_t, static_cast<size_t>(Ended::kCount)> ended{};
  std::array<int64_t, 6> answers{};  // by the first digit of the status
  int64_t retries = 0;
  int64_t streams_broken = 0;  // ended with an error event by the router
  int64_t chunks = 0;          // pieces of streams handed on
  int64_t bytes = 0;           // of answers
  int64_t held_back = 0;       // how often an instance was not read because the client was slow
};

struct Hub {
  Hub(const Settings& s, FleetOptions options) : settings(s), fleet(options), cors(s.allowed_origins) {}

  const Settings settings;
  std::string secret;
  Fleet fleet;
  std::array<http::Endpoint, kMostInstances> endpoints;
  std::array<TimeMs, kMostInstances> probe_at{};
  std::unordered_map<Relay*, std::shared_ptr<Relay>> relays;
  Totals totals;
  int64_t held_bytes = 0;  // of whole answers that are not complete
  std::mt19937_64 chance{std::random_device{}()};
  const http::Cors cors;
  std::unique_ptr<http::ClientLoop> loop;

  static TimeMs now() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
  // What an instance hears from its router alone: that it is the router, and which prefill instances are there.
  void add_fleet_headers(int instance, http::HeaderList& headers) const {
    if (!secret.empty()) headers.emplace_back(http::kFleetSecretHeader, secret);
    if (fleet.instances()[static_cast<size_t>(instance)].role != Role::kDecode) return;
    if (std::string ready = fleet.ready_prefills(); !ready.empty()) headers.emplace_back("x-baton-prefill", std::move(ready));
  }
  double jitter() { return static_cast<double>(chance() >> 11) * 0x1p-53; }
};

}  // namespace baton::router
