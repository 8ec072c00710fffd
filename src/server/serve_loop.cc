#include "server/serve_loop.h"

#include <csignal>
#include <ctime>

#include "base/log.h"

namespace baton::server {
namespace {

using Clock = std::chrono::steady_clock;

sigset_t our_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int s : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, s);
  return set;
}

// The next signal, or 0 if none came in time.
int next_signal(std::chrono::milliseconds limit) {
  const sigset_t set = our_signals();
  const timespec wait{limit.count() / 1000, limit.count() % 1000 * 1'000'000};
  const int s = sigtimedwait(&set, nullptr, &wait);
  return s > 0 ? s : 0;
}

void reload(Server& server) {
  if (const Status s = server.reload(); s.ok())
    log_info("keys and certificates were read again");
  else
    log_error("what was there before stays in use: {}", s.error().message);
}

}  // namespace

void block_signals() {
  const sigset_t set = our_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

bool serve_until_told(Server& server) {
  constexpr std::chrono::hours kLong(1);
  while (true) {
    const int s = next_signal(kLong);
    if (s == SIGHUP) reload(server);
    if (s == SIGTERM || s == SIGINT) break;
  }
  const auto limit = std::chrono::seconds(server.settings().shutdown_s);
  log_info("ending: requests that are under way have {} s", limit.count());
  server.begin_drain();
  const Clock::time_point deadline = Clock::now() + limit;
  constexpr std::chrono::milliseconds kGlance(50);
  while (Clock::now() < deadline) {
    if (server.drain(std::min(Clock::now() + kGlance, deadline))) {
      log_info("all requests have ended");
      return true;
    }
    const int s = next_signal(std::chrono::milliseconds(0));
    if (s == SIGTERM || s == SIGINT) break;
  }
  log_warning("ending at once; requests that are under way are cut");
  server.cancel_all();
  // Their clients are told so.
  constexpr std::chrono::seconds kLastWords(1);
  server.drain(Clock::now() + kLastWords);
  return false;
}

}  // namespace baton::server
