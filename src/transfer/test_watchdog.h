// How tests of transports wait: for a condition, never for a time, and not for ever.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>

namespace baton::transfer {

// Longer than anything takes on a machine that does much else.
inline constexpr std::chrono::seconds kWatchdog{240};

// Until `done`; if that is never, the program ends, since what hangs cannot be taken down.
inline void wait_until(const std::function<bool()>& done, const char* what) {
  const auto ends = std::chrono::steady_clock::now() + kWatchdog;
  while (!done()) {
    if (std::chrono::steady_clock::now() > ends) {
      std::fprintf(stderr, "watchdog: no end of waiting for %s\n", what);
      std::abort();
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace baton::transfer
