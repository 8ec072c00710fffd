// The post of an instance: carries messages of the hand-over to other instances and from them, over HTTP, on the port that the instance
// listens on anyway.
//
// A decode instance has the URLs of prefill instances from its settings and from routers; it introduces itself to each, so that it can be
// written to, and tells its engine who may be ordered from. A prefill instance learns of decode instances when they introduce themselves.
// Whoever is found to be gone is told to engine and transport.
//
// Threads: send() and what handles requests from any, without waiting for anybody; a loop makes the calls; a thread of its own does what
// may wait (names, meetings of the transport).
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "engine/engine.h"
#include "fleet/peers.h"
#include "http/client_loop.h"
#include "transfer/remote.h"

namespace baton::fleet {

// Of a router, to a decode instance: the URLs of prefill instances that are there, separated by commas.
inline constexpr std::string_view kPrefillHeader = "x-baton-prefill";

// Who this process is among others: the same instance whenever it is started to listen at this address of this machine, each time with a
// larger epoch. Port 0: an instance that will not be found again.
pd::Process this_process(const std::string& host, uint16_t port);

struct PostOptions {
  pd::Process self;
  bool prefill = false;               // else decode
  std::vector<std::string> prefills;  // URLs that a decode instance orders from, besides those that routers name
  std::string own_url;                // how others call it; empty: at the address that its calls come from
  std::string secret;                 // goes with each call; may be empty
  http::ClientTls tls;
};

class Post final : public engine::Messenger {
 public:
  // `transport` outlives it. Fails for URLs that are none, or whose names are not known.
  static Result<std::unique_ptr<Post>> create(PostOptions options, transfer::RemoteTransport& transport);
  ~Post() override;

  // The engine, which has entered the transport. From here on it gets messages; until close().
  void open(engine::Engine& engine, uint16_t port, bool tls);
  // Nobody is called any more, and the engine gets nothing.
  void close();

  void send(pd::Process to, std::span<const std::byte> message) override;

  // What another instance has sent; the answer is made now or later, on another thread: status and body. `peer`: "address:port" of it.
  using Answer = std::function<void(int status, std::string body)>;
  void meet(std::string_view body, const std::string& peer, Answer answer);
  void messages(std::string_view body, const Answer& answer);
  // A router has named the prefill instances that are there.
  void list(std::string_view urls);
  // The instance ends: it takes no orders that are not on their way.
  void drain() { draining_ = true; }

  bool is_prefill() const { return options_.prefill; }
  // Prefill instances that may be ordered from.
  int64_t prefills_there() const { return there_.load(std::memory_order_relaxed); }
  struct Totals {
    int64_t peers = 0, met = 0, prefills_there = 0, sent = 0, received = 0, dropped = 0, failed_calls = 0, gone = 0;
  };
  Totals totals() const;
  // Members of a JSON object, without its braces.
  std::string json() const;

 private:
  class Hearing;
  Post(PostOptions options, transfer::RemoteTransport& transport)
      : options_(std::move(options)), transport_(transport), peers_(options_.self) {}

  static TimeMs now();
  // With the lock held, as the following.
  void settle();
  Status add(const std::string& text, bool fixed);

  void wake();
  void make_calls();
  void over(PeerId peer, int status, const std::string& body, const http::CallEnd& end);
  bool later(std::function<void()> work);
  void work();
  void meet_now(const Meeting& meeting, const std::string& peer, const Answer& answer);
  Result<std::string> url_of(const Meeting& meeting, const std::string& peer) const;

  const PostOptions options_;
  transfer::RemoteTransport& transport_;
  std::string meeting_;  // what is said to prefill instances
  std::atomic<bool> draining_{false};
  std::atomic<int64_t> there_{0};
  std::atomic<bool> woken_{false};

  mutable std::mutex mutex_;  // what follows
  engine::Engine* engine_ = nullptr;
  Peers peers_;
  std::unordered_map<std::string, http::Endpoint> endpoints_;  // by URL
  std::vector<pd::InstanceId> told_;                           // what the engine knows of prefill instances
  std::string listed_;                                         // by a router, the last time
  int64_t received_ = 0, gone_ = 0;

  std::mutex work_mutex_;  // what follows
  std::condition_variable working_;
  std::deque<std::function<void()>> work_;
  bool stopping_ = false;

  std::unique_ptr<http::ClientLoop> loop_;
  std::thread worker_;
};

}  // namespace baton::fleet
