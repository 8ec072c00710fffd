// One thread and its connections: readiness of sockets, mail of other threads, deadlines.
#pragma once

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "http/listener.h"
#include "http/tls.h"
#include "http/turn.h"

namespace baton::http {

using Clock = std::chrono::steady_clock;
constexpr Clock::time_point kNever = Clock::time_point::max();

// Written by its loop alone, read by anyone.
class Count {
 public:
  void add(int64_t n = 1) { value_.store(value_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed); }
  int64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> value_{0};
};

struct LoopCounters {
  Count connections_open, requests_open, streams_open, connections_accepted, connections_refused, requests, answers[6], malformed,
      clients_gone, slow_readers, read_timeouts, tls_failures, bytes_received, bytes_sent, sends;
};

// What all loops of a listener share.
struct Shared {
  ListenerOptions options;
  Handler handler;
  std::atomic<int> connections{0};
};

class Loop {
 public:
  explicit Loop(Shared& shared);
  ~Loop();

  void start();
  // From another thread: closes everything and ends the thread.
  void stop();

  // On the loop's thread, or posted to it.
  void adopt(boost::asio::ip::tcp::socket socket, TlsChannel tls);
  void begin_drain();

  // For connections, on the loop's thread.
  void add(std::shared_ptr<Connection> connection);
  void remove(Connection& connection);
  Clock::time_point now() const { return now_; }
  void update_now() { now_ = Clock::now(); }
  bool draining() const { return draining_; }

  boost::asio::io_context io{1};
  Shared& shared;
  LoopCounters counters;
  const std::shared_ptr<Mailbox> mailbox;
  std::vector<char> scratch;  // what is read, before it is sorted out

 private:
  void read_mail();
  void arm_sweep();
  void sweep();

  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  boost::asio::steady_timer sweep_timer_;
  std::chrono::milliseconds sweep_every_;
  std::vector<std::shared_ptr<Connection>> connections_;
  std::vector<std::shared_ptr<Turn>> mail_;
  Clock::time_point now_ = Clock::now();
  bool sweeping_ = false;
  bool draining_ = false;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace baton::http
