#include "app/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include "app/console.h"

namespace baton::app {
namespace {
constexpr std::chrono::milliseconds kQuiet{500};     // shorter work shows nothing
constexpr std::chrono::milliseconds kInterval{100};  // between two lines
}  // namespace

Progress::Progress(std::string what, int64_t total)
    : what_(std::move(what)), total_(total), terminal_(isatty(STDERR_FILENO) == 1), start_(std::chrono::steady_clock::now()),
      last_(start_) {}

void Progress::update(int64_t done) {
  if (!terminal_) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - start_ < kQuiet || now - last_ < kInterval) return;
  last_ = now;
  shown_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  print_error(fmt::format("\r\x1b[K{} {} of {} ({:.0f}/s)", what_, done, total_, static_cast<double>(done) / seconds));
}

void Progress::restart(std::string what, int64_t total) {
  clear();
  what_ = std::move(what);
  total_ = total;
  start_ = last_ = std::chrono::steady_clock::now();
}

void Progress::clear() {
  if (shown_) print_error("\r\x1b[K");
  shown_ = false;
}

}  // namespace baton::app
