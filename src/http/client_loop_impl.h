// The inside of ClientLoop. client_loop.cc has the loop, its tasks, calls and the connections that are kept; client_loop_link.cc what goes
// over one connection.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "http/client_loop.h"
#include "http/response_reader.h"
#include "http/transport.h"

namespace baton::http {

using Clock = std::chrono::steady_clock;
constexpr Clock::time_point kNoDeadline = Clock::time_point::max();

// What the system says of an errno.
std::string system_text(int error);

// One connection. It belongs to a call, or lies idle.
struct Link {
  enum class State { kConnecting, kHandshake, kBusy, kIdle, kTaken };  // taken: out of the idle ones, its call has not begun

  ~Link() {
    transport.reset();
    if (fd >= 0) ::close(fd);
  }

  uint64_t id = 0;
  int fd = -1;
  std::string server;  // whose connections may stand in for each other
  State state = State::kConnecting;
  std::optional<Transport> transport;
  uint32_t events = 0;  // what epoll watches
  Clock::time_point deadline = kNoDeadline;
  bool closed = false;
  bool kept = false;  // has served a call before this one

  // The call.
  ClientLoop::CallId call_id = 0;
  std::optional<OutgoingCall> call;
  std::shared_ptr<Receiver> receiver;
  std::optional<ResponseReader> reader;
  std::string head;
  size_t sent = 0;
  bool sending = false;
  bool heard = false;
  bool head_told = false;
  bool paused = false;
};
using LinkPtr = std::shared_ptr<Link>;

class ClientLoop::Impl {
 public:
  explicit Impl(ClientLoopOptions options) : options_(std::move(options)) {}
  ~Impl() {
    stop();
    links_.clear();
    if (epoll_ >= 0) ::close(epoll_);
    if (wake_ >= 0) ::close(wake_);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status start();
  void stop() {
    if (!thread_.joinable()) return;
    stopping_ = true;
    wake();
    thread_.join();
  }
  void post(std::function<void()> task);
  CallId call(OutgoingCall call, std::shared_ptr<Receiver> receiver);
  void cancel(CallId id);
  void on_tick(std::function<void()> tick) { on_tick_ = std::move(tick); }
  ClientLoopCounters counters() const {
    return {.open = static_cast<int64_t>(calls_.size()), .idle = idle_count_, .connects = connects_, .reuses = reuses_};
  }

 private:
  void run();
  void run_tasks();
  void tick();
  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(wake_, &one, sizeof one);
  }

  void begin(const LinkPtr& link);
  void open(const LinkPtr& link);
  LinkPtr idle_link(const std::string& server);
  void watch(Link& link, uint32_t events);
  void close(const LinkPtr& link, bool reset);
  void on_event(const LinkPtr& link, uint32_t events);
  void shake_hands(const LinkPtr& link);
  void progress(const LinkPtr& link);
  bool send(const LinkPtr& link);
  bool read(const LinkPtr& link);
  void feed(const LinkPtr& link, std::string_view bytes);
  void fail(const LinkPtr& link, std::string_view what, bool refused = false);
  void complete(const LinkPtr& link);
  void end_call(const LinkPtr& link, CallEnd end);
  void pause(const LinkPtr& link) {
    if (!std::exchange(link->paused, true)) paused_.push_back(link);
  }
  void touch(Link& link) { link.deadline = link.call->silence_timeout.count() > 0 ? now_ + link.call->silence_timeout : kNoDeadline; }

  const ClientLoopOptions options_;
  std::shared_ptr<const TlsContext> tls_;
  int epoll_ = -1;
  int wake_ = -1;
  std::thread thread_;
  std::atomic<bool> stopping_{false};

  std::mutex mutex_;
  std::vector<std::function<void()>> tasks_;

  // The loop's own.
  std::unordered_map<uint64_t, LinkPtr> links_;
  std::unordered_map<CallId, LinkPtr> calls_;
  std::vector<std::function<void()>> soon_;
  std::unordered_map<std::string, std::vector<LinkPtr>> idle_;  // the last one was used last
  std::vector<LinkPtr> paused_;
  std::function<void()> on_tick_;
  int64_t idle_count_ = 0, connects_ = 0, reuses_ = 0;
  uint64_t next_link_ = 1;
  CallId next_call_ = 1;
  std::string scratch_ = std::string(64 << 10, '\0');
  Clock::time_point now_ = Clock::now();
  Clock::time_point next_tick_ = Clock::now();
};

}  // namespace baton::http
