#include "http/listener.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "http/raw_peer.h"

namespace baton::http {
namespace {

using std::chrono::milliseconds;

// "/echo" answers with what it got, "/hold" keeps the exchange for the test, "/drop" forgets it.
class Echo {
 public:
  explicit Echo(Limits limits = {}, int threads = 1, const std::string& host = "127.0.0.1") {
    auto started = Listener::start({.host = host, .threads = threads, .limits = limits},
                                   [this](const std::shared_ptr<Exchange>& exchange) { handle(exchange); });
    if (!started.ok()) throw std::runtime_error(started.error().message);
    listener = std::move(*started);
  }

  uint16_t port() const { return listener->port(); }
  std::shared_ptr<Exchange> held() {
    for (int i = 0; i < 1000; ++i) {
      {
        const std::lock_guard lock(mutex_);
        if (!held_.empty()) {
          auto exchange = std::move(held_.front());
          held_.erase(held_.begin());
          return exchange;
        }
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
    return nullptr;
  }

  std::unique_ptr<Listener> listener;

 private:
  void handle(const std::shared_ptr<Exchange>& exchange) {
    const Request& r = exchange->request();
    if (r.path == "/echo") {
      exchange->respond({.headers = {{"X-Id", std::string(r.header("X-Id"))}},
                         .content_type = "text/plain",
                         .body = r.method + "|" + r.query + "|" + r.body});
    } else if (r.path == "/hold") {
      const std::lock_guard lock(mutex_);
      held_.push_back(exchange);
    } else if (r.path == "/large") {
      exchange->respond({.content_type = "text/plain", .body = std::string(8 << 20, 'x')});
    } else if (r.path == "/none") {
      exchange->respond({.status = 204});
    } else if (r.path == "/throw") {
      throw std::runtime_error("as asked");
    } else if (r.path == "/stream") {
      const auto stream = exchange->stream({});
      stream->write("data: 1\n\n");
      stream->write("data: 2\n\n");
      stream->end();
    } else if (r.path != "/drop") {
      exchange->respond({.status = 404, .body = "{}"});
    }
  }

  std::mutex mutex_;
  std::vector<std::shared_ptr<Exchange>> held_;
};

std::string get(const std::string& target, const std::string& fields = {}, const std::string& method = "GET") {
  return method + " " + target + " HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n";
}
std::string post(const std::string& body, const std::string& fields = {}) {
  return get("/echo", fmt::format("Content-Length: {}\r\n{}", body.size(), fields), "POST") + body;
}

TEST(Listener, KeepsTheConnectionAndTheOrder) {
  Echo server;
  RawPeer peer(server.port());
  peer.send(post("one") + post("two") + get("/stream") + get("/hold") + post("four", "Connection: close\r\n"));
  std::string got = peer.read_until("0\r\n\r\n");
  EXPECT_NE(got.find("POST||one"), std::string::npos);
  EXPECT_LT(got.find("POST||one"), got.find("POST||two"));
  EXPECT_NE(got.find("\r\n\r\n12\r\ndata: 1\n\ndata: 2\n\n\r\n0\r\n\r\n"), std::string::npos) << got;
  const auto held = server.held();
  ASSERT_NE(held, nullptr);
  EXPECT_EQ(peer.read_until("four", milliseconds(50)), "") << "answered before the one in front of it";
  held->respond({.content_type = "text/plain", .body = "three"});
  got = peer.read_to_end();
  EXPECT_LT(got.find("three"), got.find("POST||four"));
  EXPECT_NE(got.find("Connection: close"), std::string::npos);
  EXPECT_EQ(peer.end(), RawPeer::End::kClosed);
  const Counters counters = server.listener->counters();
  EXPECT_EQ(counters.requests, 5);
  EXPECT_EQ(counters.answers[2], 5);
  EXPECT_TRUE(eventually([&] { return server.listener->counters().connections_open == 0; }));
}

TEST(Listener, EverySplitIntoSegments) {
  Echo server;
  const std::string request = post("hello");
  RawPeer peer(server.port());
  for (size_t cut = 1; cut < request.size(); ++cut) {
    peer.send(std::string_view(request).substr(0, cut));
    // Most cuts go out as a segment of their own; some are given time to be read alone.
    if (cut % 8 == 0) std::this_thread::sleep_for(milliseconds(2));
    peer.send(std::string_view(request).substr(cut));
    const std::string got = peer.read_until("POST||hello");
    ASSERT_NE(got.find("POST||hello"), std::string::npos) << "cut at " << cut << ": " << got;
  }
  EXPECT_EQ(server.listener->counters().requests, static_cast<int64_t>(request.size()) - 1);
}

TEST(Listener, HeadNoContentAndOldClients) {
  Echo server;
  RawPeer peer(server.port());
  peer.send(get("/echo?abc", {}, "HEAD") + get("/none") + get("/stream", {}, "HEAD") + post("x"));
  const std::string got = peer.read_until("POST||x");
  EXPECT_NE(got.find("Content-Length: 9\r\n"), std::string::npos) << got;
  EXPECT_EQ(got.find("HEAD|abc|"), std::string::npos);
  EXPECT_EQ(got.find("data: 1"), std::string::npos);
  const size_t none = got.find("204 No Content");
  EXPECT_EQ(got.substr(none, got.find("\r\n\r\n", none) - none).find("Content-"), std::string::npos);

  RawPeer old(server.port());
  old.send("GET /echo HTTP/1.0\r\n\r\n");
  EXPECT_NE(old.read_to_end().find("GET||"), std::string::npos);
  RawPeer keeping(server.port());
  keeping.send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_NE(keeping.read_until("GET||").find("Connection: keep-alive"), std::string::npos);
  keeping.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const std::string stream = keeping.read_to_end();
  EXPECT_EQ(stream.substr(stream.find("\r\n\r\n") + 4), "data: 1\n\ndata: 2\n\n") << "no chunks for HTTP/1.0";
  EXPECT_EQ(keeping.end(), RawPeer::End::kClosed);
}

TEST(Listener, ContinuesOnlyWhatItWillTake) {
  Echo server({.body_bytes = 100});
  RawPeer peer(server.port());
  peer.send(get("/echo", "Expect: 100-continue\r\nContent-Length: 4\r\n", "POST"));
  EXPECT_EQ(peer.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  peer.send("body");
  EXPECT_NE(peer.read_until("POST||body").find("200 OK"), std::string::npos);
  // With the body right behind the head there is nothing to wait for.
  peer.send(post("body", "Expect: 100-continue\r\n"));
  EXPECT_TRUE(peer.read_until("POST||body").starts_with("HTTP/1.1 200"));
  peer.send(get("/echo", "Expect: 100-continue\r\nContent-Length: 101\r\n", "POST"));
  EXPECT_TRUE(peer.read_to_end().starts_with("HTTP/1.1 413"));
}

// An upload that is refused while it comes: the client must get to read why.
TEST(Listener, RefusalReachesAClientThatStillSends) {
  Echo server({.body_bytes = 1 << 20});
  RawPeer peer(server.port());
  peer.send(get("/echo", "Transfer-Encoding: chunked\r\n", "POST"));
  const std::string chunk = fmt::format("{:x}\r\n{}\r\n", 1 << 20, std::string(1 << 20, 'x'));
  for (int i = 0; i < 12; ++i) ASSERT_TRUE(peer.send(chunk)) << i;
  peer.end_sending();
  const std::string got = peer.read_to_end();
  EXPECT_TRUE(got.starts_with("HTTP/1.1 413 Content Too Large\r\n")) << got.substr(0, 200);
  EXPECT_NE(got.find(R"({"error":{"message":"The body is longer than 1048576 bytes.","type":"invalid_request_error")"), std::string::npos);
  EXPECT_EQ(peer.end(), RawPeer::End::kClosed);
  EXPECT_EQ(server.listener->counters().malformed, 1);
}

TEST(Listener, MalformedHeads) {
  Echo server({.header_bytes = 1000});
  const std::pair<std::string, std::string> cases[] = {
      {"nonsense\r\n\r\n", "400"},
      {"\x16\x03\x01\x02\x00\x01\x00", "400"},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"},
      {get("/", "A: " + std::string(2000, 'a') + "\r\n"), "431"},
      {"GET /" + std::string(5000, 'a'), "431"},
      {get("/", "Transfer-Encoding: gzip\r\n"), "501"},
      {get("/", "Expect: miracles\r\n"), "417"},
  };
  for (const auto& [bytes, status] : cases) {
    RawPeer peer(server.port());
    peer.send(bytes);
    const std::string got = peer.read_to_end();
    EXPECT_TRUE(got.starts_with("HTTP/1.1 " + status)) << bytes.substr(0, 40) << ": " << got.substr(0, 100);
    EXPECT_NE(got.find("Connection: close"), std::string::npos);
    EXPECT_NE(got.find(R"({"error":)"), std::string::npos);
  }
  // Broken off, in the head and in the body: no answer, and nothing left.
  for (const std::string& bytes : {std::string("GET / HT"), post("body").substr(0, post("body").size() - 1), std::string()}) {
    RawPeer peer(server.port());
    peer.send(bytes);
    peer.end_sending();
    EXPECT_EQ(peer.read_to_end(), "");
    EXPECT_EQ(peer.end(), RawPeer::End::kClosed);
  }
  EXPECT_EQ(server.listener->counters().requests, 0);
  EXPECT_TRUE(eventually([&] { return server.listener->counters().connections_open == 0; }));
}

TEST(Listener, ForgottenAndFailedRequestsAreAnswered500) {
  Echo server;
  for (const char* path : {"/drop", "/throw"}) {
    RawPeer peer(server.port());
    peer.send(get(path) + post("next", "Connection: close\r\n"));
    const std::string got = peer.read_to_end();
    EXPECT_TRUE(got.starts_with("HTTP/1.1 500")) << got;
    EXPECT_NE(got.find("POST||next"), std::string::npos);
  }
}

TEST(Listener, FieldsCannotBeginLines) {
  Echo server;
  RawPeer peer(server.port());
  peer.send(get("/hold"));
  server.held()->respond({.headers = {{"X-Id", "a\r\nX-Evil: 1"}, {"Content-Length", "7"}, {"X\n", "b"}}, .body = "{}"});
  const std::string got = peer.read_until("{}");
  EXPECT_NE(got.find("X-Id: a  X-Evil: 1\r\n"), std::string::npos) << got;
  EXPECT_EQ(got.find("Content-Length: 7"), std::string::npos);
}

TEST(Listener, Timeouts) {
  Echo server({.header_timeout = milliseconds(150), .body_timeout = milliseconds(200), .idle_timeout = milliseconds(400)});
  const auto since = [start = std::chrono::steady_clock::now()] { return std::chrono::steady_clock::now() - start; };
  RawPeer head(server.port()), body(server.port()), fresh(server.port()), idle(server.port());
  body.send(get("/echo", "Content-Length: 10\r\n", "POST") + "part");
  idle.send(post("x"));
  // A byte now and then does not help.
  std::string got;
  for (const char c : std::string("GET /slow HTTP/1.1\r\nHost")) {
    if (!head.send(std::string(1, c)) || !(got = head.read_until("}", milliseconds(20))).empty()) break;
  }
  EXPECT_LT(since(), milliseconds(2000));
  EXPECT_TRUE(got.starts_with("HTTP/1.1 408")) << got;
  EXPECT_TRUE(body.read_to_end().starts_with("HTTP/1.1 408"));
  EXPECT_EQ(fresh.read_to_end(), "");
  EXPECT_NE(idle.read_to_end().find("POST||x"), std::string::npos);
  EXPECT_GE(since(), milliseconds(400));
  EXPECT_EQ(server.listener->counters().read_timeouts, 2);
}

TEST(Listener, WaitingForAnAnswerIsNotIdleness) {
  Echo server({.header_timeout = milliseconds(50), .body_timeout = milliseconds(50), .idle_timeout = milliseconds(50)});
  RawPeer peer(server.port());
  peer.send(get("/hold"));
  const auto held = server.held();
  std::this_thread::sleep_for(milliseconds(300));
  held->respond({.body = "{}"});
  EXPECT_NE(peer.read_until("{}").find("200 OK"), std::string::npos);
}

TEST(Listener, TakesNoMoreConnectionsThanItsLimit) {
  Echo server({.connections = 3});
  std::vector<RawPeer> peers;
  for (int i = 0; i < 3; ++i) {
    peers.emplace_back(server.port());
    peers.back().send(post("x"));
    EXPECT_NE(peers.back().read_until("POST||x"), "");
  }
  RawPeer further(server.port());
  further.send(post("y"));
  EXPECT_TRUE(further.read_to_end().starts_with("HTTP/1.1 503"));
  EXPECT_EQ(server.listener->counters().connections_refused, 1);
  further.close();
  peers.pop_back();
  EXPECT_TRUE(eventually([&] {
    RawPeer again(server.port());
    again.send(post("z"));
    return again.read_until("POST||z", milliseconds(1000)).find("200 OK") != std::string::npos;
  }));
}

TEST(Listener, LargeAnswersAndSlowReaders) {
  Echo server({.write_timeout = milliseconds(300)});
  RawPeer reading(server.port(), 16 << 10);
  RawPeer stuck(server.port(), 16 << 10);
  stuck.send(get("/large"));
  reading.send(get("/large") + post("after", "Connection: close\r\n"));
  const std::string got = reading.read_to_end();
  EXPECT_GT(got.size(), 8U << 20);
  EXPECT_NE(got.find("POST||after"), std::string::npos);
  EXPECT_TRUE(eventually([&] { return server.listener->counters().slow_readers == 1; }));
  EXPECT_TRUE(eventually([&] { return server.listener->counters().connections_open == 0; }));
}

TEST(Listener, AHandlerMayUseItFromTheFirstRequestToTheLast) {
  for (int round = 0; round < 20; ++round) {
    std::unique_ptr<Listener> listener;
    std::atomic<bool> closed{false};
    listener = Listener::create({.threads = 2}, [&](const std::shared_ptr<Exchange>& exchange) {
      EXPECT_FALSE(closed);
      exchange->respond({.body = fmt::format("open: {}", listener->counters().connections_open)});
    });
    ASSERT_TRUE(listener->open().ok());
    std::vector<std::thread> clients;
    std::atomic<int> answered{0};
    for (int i = 0; i < 4; ++i)
      clients.emplace_back([&] {
        RawPeer peer(listener->port());
        while (true) {
          peer.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
          if (peer.read_until("open: ").find("open: ") == std::string::npos) return;
          ++answered;
        }
      });
    ASSERT_TRUE(eventually([&] { return answered >= 4; }));
    listener->close();
    closed = true;
    for (std::thread& c : clients) c.join();
    EXPECT_EQ(listener->counters().connections_open, 0);
  }
}

TEST(Listener, Addresses) {
  Echo four;
  const auto taken = Listener::start({.port = four.port()}, [](auto) {});
  ASSERT_FALSE(taken.ok());
  EXPECT_EQ(taken.error().message,
            fmt::format("Cannot listen on 127.0.0.1 port {}: Address already in use. Stop the program that listens there, or "
                        "choose another port.",
                        four.port()));
  EXPECT_NE(Listener::start({.host = "no.such.host.invalid"}, [](auto) {}).error().message.find("no.such.host.invalid"), std::string::npos);
  EXPECT_NE(Listener::start({.host = "192.0.2.1"}, [](auto) {}).error().message.find("Choose an address of this machine"),
            std::string::npos);
  EXPECT_FALSE(Listener::start({.threads = 0}, [](auto) {}).ok());

  for (const char* host : {"::", "localhost", "0.0.0.0"}) {
    Echo server({}, 2, host);
    RawPeer peer(server.port());
    peer.send(post("x"));
    EXPECT_NE(peer.read_until("POST||x").find("200"), std::string::npos) << host;
  }
  if (const int probe = ::socket(AF_INET6, SOCK_STREAM, 0); probe >= 0) {
    sockaddr_in6 loopback{};
    loopback.sin6_family = AF_INET6;
    loopback.sin6_addr = in6addr_loopback;
    const bool usable = ::bind(probe, reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) == 0;
    ::close(probe);
    if (!usable) GTEST_SKIP() << "this machine has no IPv6";
  }
  Echo six({}, 1, "::1");
  RawPeer peer(six.port(), 0, true);
  peer.send(get("/hold"));
  const auto held = six.held();
  ASSERT_NE(held, nullptr);
  EXPECT_TRUE(held->request().peer.starts_with("[::1]:")) << held->request().peer;
}

TEST(Listener, SocketsAreNotInherited) {
  Echo server;
  RawPeer peer(server.port());
  peer.send(get("/hold"));
  ASSERT_NE(server.held(), nullptr);
  int sockets = 0;
  for (int fd = 3; fd < 1000; ++fd) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0 || address.ss_family != AF_INET) continue;
    ++sockets;
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  }
  EXPECT_GE(sockets, 3);
}

TEST(Listener, DrainLetsOpenRequestsEnd) {
  Echo server;  // one loop, which has begun to drain once it closes the idle connection
  RawPeer idle(server.port()), busy(server.port()), reading(server.port());
  idle.send(post("x"));
  EXPECT_NE(idle.read_until("POST||x"), "");
  busy.send(get("/hold") + post("pipelined"));
  const auto held = server.held();
  const std::string request = post("late");
  reading.send(request.substr(0, 30));
  EXPECT_TRUE(eventually([&] { return server.listener->counters().connections_open == 3; }));
  std::this_thread::sleep_for(milliseconds(20));  // the part of a head is read
  auto drained = std::async([&] { return server.listener->drain(std::chrono::steady_clock::now() + std::chrono::seconds(20)); });
  EXPECT_EQ(idle.read_to_end(), "");
  EXPECT_EQ(idle.end(), RawPeer::End::kClosed);
  EXPECT_FALSE(RawPeer(server.port()).connected());
  reading.send(request.substr(30));
  const std::string late = reading.read_to_end();
  EXPECT_NE(late.find("POST||late"), std::string::npos);
  EXPECT_NE(late.find("Connection: close"), std::string::npos);
  held->respond({.content_type = "text/plain", .body = "held"});
  const std::string got = busy.read_to_end();
  EXPECT_NE(got.find("held"), std::string::npos);
  EXPECT_EQ(got.find("pipelined"), std::string::npos) << "a request that was not begun is not answered behind Connection: close";
  busy.close();
  EXPECT_TRUE(drained.get());
}

// What nobody has taken yet does not keep the process: a body or a head that stops arriving.
TEST(Listener, DrainDoesNotWaitForRequestsThatNeverComplete) {
  Echo server({.drain_patience = milliseconds(50)});
  RawPeer body(server.port()), head(server.port());
  const std::string request = post("late");
  body.send(request.substr(0, request.size() - 1));
  head.send(request.substr(0, 30));
  EXPECT_TRUE(eventually([&] { return server.listener->counters().bytes_received == std::ssize(request) - 1 + 30; }));
  auto drained = std::async([&] { return server.listener->drain(std::chrono::steady_clock::now() + std::chrono::minutes(1)); });
  for (RawPeer* peer : {&body, &head}) {
    EXPECT_NE(peer->read_to_end().find(" 503 "), std::string::npos);
    peer->close();
  }
  EXPECT_TRUE(drained.get());
}

TEST(Listener, DrainEndsAtItsDeadlineAndStopTellsTheRest) {
  auto server = std::make_unique<Echo>();
  RawPeer peer(server->port());
  peer.send(get("/hold"));
  const auto held = server->held();
  std::atomic<int> gone = 0;
  held->on_gone([&] { ++gone; });
  EXPECT_FALSE(server->listener->drain(std::chrono::steady_clock::now() + milliseconds(50)));
  EXPECT_EQ(gone, 0);
  server->listener.reset();
  EXPECT_EQ(gone, 1);
  // The exchange outlives its listener.
  EXPECT_TRUE(held->gone());
  held->respond({});
  const auto stream = held->stream({});
  EXPECT_FALSE(stream->write("data: x\n\n"));
  EXPECT_EQ(peer.read_to_end(), "");
}

TEST(Listener, ManyThreadsAndConnections) {
  Echo server({}, 3);
  std::vector<std::thread> threads;
  std::atomic<int> good = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int c = 0; c < 10; ++c) {
        RawPeer peer(server.port());
        for (int r = 0; r < 20; ++r) {
          peer.send(post("x") + get("/stream"));
          if (peer.read_until("0\r\n\r\n").find("POST||x") != std::string::npos) ++good;
        }
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(good, 4 * 10 * 20);
  EXPECT_TRUE(eventually([&] { return server.listener->counters().connections_open == 0; }));
  const Counters c = server.listener->counters();
  EXPECT_EQ(c.requests, 4 * 10 * 20 * 2);
  EXPECT_EQ(c.requests_open, 0);
  EXPECT_EQ(c.streams_open, 0);
}

}  // namespace
}  // namespace baton::http
