#include "http/client_loop.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "http/listener.h"
#include "http/raw_peer.h"
#include "http/test_certificates.h"

namespace baton::http {
namespace {

using std::chrono::milliseconds;

// What one call heard.
class Heard : public Receiver {
 public:
  void on_head(int status, const HeaderList&) override {
    const std::lock_guard lock(mutex_);
    status_ = status;
  }
  void on_body(std::string_view bytes) override {
    const std::lock_guard lock(mutex_);
    EXPECT_NE(status_, 0) << "the head comes first";
    EXPECT_EQ(ends_, 0);
    body_ += bytes;
  }
  void on_end(const CallEnd& end) override {
    const std::lock_guard lock(mutex_);
    end_ = end;
    ++ends_;
  }
  bool wants_more() override { return wants_; }

  bool ended() const { return get(ends_) == 1; }
  std::string body() const { return get(body_); }
  int status() const { return get(status_); }
  CallEnd end() const { return get(end_); }
  std::atomic<bool> wants_{true};

 private:
  template <class T>
  T get(const T& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }
  mutable std::mutex mutex_;
  int status_ = 0;
  int ends_ = 0;
  std::string body_;
  CallEnd end_;
};

// Every request goes to the test.
struct Server {
  explicit Server(ListenerOptions options = {}) {
    auto started = Listener::start(std::move(options), [this](std::shared_ptr<Exchange> exchange) {
      if (exchange->request().path == "/echo") return exchange->respond({.body = exchange->request().body});
      const std::lock_guard lock(mutex);
      held.push_back(std::move(exchange));
    });
    EXPECT_TRUE(started.ok());
    listener = std::move(*started);
  }
  std::shared_ptr<Exchange> next() {
    std::shared_ptr<Exchange> found;
    EXPECT_TRUE(eventually([&] {
      const std::lock_guard lock(mutex);
      if (held.empty()) return false;
      found = held.front();
      held.erase(held.begin());
      return true;
    }));
    return found;
  }
  std::mutex mutex;
  std::vector<std::shared_ptr<Exchange>> held;
  std::unique_ptr<Listener> listener;
};

struct Calls {
  explicit Calls(ClientLoopOptions options = {}) {
    auto started = ClientLoop::start(std::move(options));
    EXPECT_TRUE(started.ok());
    loop = std::move(*started);
  }
  template <class F>
  auto on_loop(F f) {
    decltype(f()) result{};
    std::atomic<bool> done{false};
    loop->post([&] {
      result = f();
      done = true;
    });
    EXPECT_TRUE(eventually([&] { return done.load(); }));
    return result;
  }
  ClientLoop::CallId call(uint16_t port, const std::shared_ptr<Receiver>& receiver, const std::string& target, const std::string& body = {},
                          bool tls = false, milliseconds silence = {}) {
    auto endpoint = Endpoint::resolve({.tls = tls, .host = "127.0.0.1", .port = port});
    EXPECT_TRUE(endpoint.ok());
    const auto held = std::make_shared<const std::string>(body);
    return on_loop([&] {
      return loop->call(
          {.endpoint = *endpoint, .method = "POST", .target = target, .body = *held, .held = held, .silence_timeout = silence}, receiver);
    });
  }
  ClientLoopCounters counters() {
    return on_loop([&] { return loop->counters(); });
  }
  std::unique_ptr<ClientLoop> loop;
};

TEST(ClientLoop, KeepsConnections) {
  Server server;
  Calls calls;
  for (int i = 0; i < 20; ++i) {
    const std::string body(static_cast<size_t>(i) * 40'000, static_cast<char>('a' + i));
    const auto heard = std::make_shared<Heard>();
    calls.call(server.listener->port(), heard, "/echo", body);
    ASSERT_TRUE(eventually([&] { return heard->ended(); }));
    EXPECT_TRUE(heard->end().complete) << heard->end().problem;
    EXPECT_EQ(heard->status(), 200);
    EXPECT_EQ(heard->body(), body);
  }
  const ClientLoopCounters c = calls.counters();
  EXPECT_EQ(c.connects, 1);
  EXPECT_EQ(c.reuses, 19);
  EXPECT_EQ(c.open, 0);
  EXPECT_EQ(c.idle, 1);
}

TEST(ClientLoop, ManyAtOnceOverTls) {
  const TestCertificates files;
  files.make("ca", "", "");
  files.make("server", "ca", "DNS:localhost,IP:127.0.0.1");
  Server server({.threads = 2, .tls = TlsFiles{files.certificate("server"), files.key("server")}});
  Calls calls({.tls = {.ca_file = files.certificate("ca")}});
  std::vector<std::shared_ptr<Heard>> all;
  const std::string body(300'000, 'x');
  for (int i = 0; i < 30; ++i) {
    all.push_back(std::make_shared<Heard>());
    calls.call(server.listener->port(), all.back(), "/echo", body, true);
  }
  for (const auto& heard : all) {
    ASSERT_TRUE(eventually([&] { return heard->ended(); }));
    EXPECT_TRUE(heard->end().complete) << heard->end().problem;
    EXPECT_EQ(heard->body(), body);
  }
}

TEST(ClientLoop, AnAnswerThatBreaksOffIsNoAnswer) {
  Server server;
  Calls calls;
  const auto heard = std::make_shared<Heard>();
  calls.call(server.listener->port(), heard, "/hold");
  {
    const auto stream = server.next()->stream({});
    stream->write("data: 1\n\n");
    ASSERT_TRUE(eventually([&] { return !heard->body().empty(); }));
  }  // dropped
  ASSERT_TRUE(eventually([&] { return heard->ended(); }));
  EXPECT_FALSE(heard->end().complete);
  EXPECT_EQ(heard->body(), "data: 1\n\n");
  EXPECT_EQ(calls.counters().idle, 0);
}

TEST(ClientLoop, CancellingTellsTheServerAndNobodyElse) {
  Server server;
  Calls calls;
  const auto heard = std::make_shared<Heard>();
  const auto id = calls.call(server.listener->port(), heard, "/hold");
  const auto exchange = server.next();
  calls.on_loop([&] {
    calls.loop->cancel(id);
    return 0;
  });
  EXPECT_TRUE(eventually([&] { return exchange->gone(); }));
  EXPECT_FALSE(heard->ended());
  EXPECT_EQ(calls.counters().open, 0);
}

TEST(ClientLoop, AKeptConnectionThatWasClosedIsReplaced) {
  Server server({.limits = {.idle_timeout = milliseconds(20)}});
  Calls calls;
  for (int i = 0; i < 30; ++i) {
    const auto heard = std::make_shared<Heard>();
    calls.call(server.listener->port(), heard, "/echo", "again");
    ASSERT_TRUE(eventually([&] { return heard->ended(); }));
    ASSERT_TRUE(heard->end().complete) << heard->end().problem;
    std::this_thread::sleep_for(milliseconds(i));  // around the moment when the server closes
  }
}

TEST(ClientLoop, SilenceAndClosedPorts) {
  uint16_t port = 0;
  Calls calls;
  {
    Server server;
    port = server.listener->port();
    const auto heard = std::make_shared<Heard>();
    calls.call(port, heard, "/hold", {}, false, milliseconds(50));
    ASSERT_TRUE(eventually([&] { return heard->ended(); }));
    EXPECT_NE(heard->end().problem.find("silent"), std::string::npos) << heard->end().problem;
  }
  const auto refused = std::make_shared<Heard>();
  calls.call(port, refused, "/echo");
  ASSERT_TRUE(eventually([&] { return refused->ended(); }));
  EXPECT_FALSE(refused->end().complete);
  EXPECT_TRUE(refused->end().refused);
  EXPECT_NE(refused->end().problem.find(fmt::format("127.0.0.1:{}", port)), std::string::npos) << refused->end().problem;
}

TEST(ClientLoop, AReceiverThatWantsNoMoreHoldsTheServerBack) {
  Server server({.limits = {.stream_bytes = 64 << 20}});
  Calls calls;
  const auto heard = std::make_shared<Heard>();
  heard->wants_ = false;
  calls.call(server.listener->port(), heard, "/hold");
  const auto stream = server.next()->stream({});
  constexpr size_t kBytes = 32 << 20;
  const std::string part(1 << 20, 'x');
  for (size_t sent = 0; sent < kBytes; sent += part.size()) ASSERT_TRUE(stream->write(part));
  stream->end();
  // The system's buffers take a few megabytes; then it stands.
  size_t before = 0;
  ASSERT_TRUE(eventually([&] { return std::exchange(before, stream->unsent()) == stream->unsent() && before > 0; }));
  EXPECT_GT(stream->unsent(), kBytes / 2);
  EXPECT_TRUE(heard->body().empty());
  heard->wants_ = true;
  ASSERT_TRUE(eventually([&] { return heard->ended(); }));
  EXPECT_TRUE(heard->end().complete) << heard->end().problem;
  EXPECT_EQ(heard->body().size(), kBytes);
}

}  // namespace
}  // namespace baton::http
