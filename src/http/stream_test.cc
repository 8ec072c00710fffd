#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

#include "base/test_seed.h"
#include "http/listener.h"
#include "http/raw_peer.h"

namespace baton::http {
namespace {

using std::chrono::milliseconds;

// Every request is handed to the test.
class Holder {
 public:
  explicit Holder(Limits limits = {}, int threads = 1) {
    auto started = Listener::start({.threads = threads, .limits = limits}, [this](std::shared_ptr<Exchange> exchange) {
      const std::lock_guard lock(mutex_);
      held_.push_back(std::move(exchange));
      arrived_.notify_all();
    });
    if (!started.ok()) throw std::runtime_error(started.error().message);
    listener = std::move(*started);
  }
  std::shared_ptr<Exchange> next() {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, std::chrono::seconds(10), [&] { return !held_.empty(); })) return nullptr;
    auto exchange = std::move(held_.front());
    held_.erase(held_.begin());
    return exchange;
  }
  Counters counters() const { return listener->counters(); }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<std::shared_ptr<Exchange>> held_;
  std::unique_ptr<Listener> listener;  // last: its threads use the others
};

constexpr const char* kGet = "GET /s HTTP/1.1\r\nHost: h\r\n\r\n";

// The content of a chunked body, or what is wrong with it.
std::string unchunk(std::string_view answer) {
  std::string content;
  size_t at = answer.find("\r\n\r\n");
  if (at == std::string_view::npos) return "no head";
  at += 4;
  for (;;) {
    const size_t end = answer.find("\r\n", at);
    if (end == std::string_view::npos) return "broken off: " + content;
    const size_t size = std::stoul(std::string(answer.substr(at, end - at)), nullptr, 16);
    if (answer.size() < end + 2 + size + 2) return "broken off: " + content;
    if (answer.substr(end + 2 + size, 2) != "\r\n") return "bad chunk";
    if (size == 0) return content;
    content += answer.substr(end + 2, size);
    at = end + 2 + size + 2;
  }
}

TEST(EventStream, KeepsOrderFromManyThreads) {
  Holder server({}, 2);
  constexpr int kStreams = 20, kEvents = 300;
  std::vector<RawPeer> peers;
  std::vector<std::shared_ptr<EventStream>> streams;
  for (int i = 0; i < kStreams; ++i) {
    peers.emplace_back(server.listener->port());
    peers.back().send(kGet);
    const auto exchange = server.next();
    ASSERT_NE(exchange, nullptr);
    streams.push_back(exchange->stream({.headers = {{"X-A", "b"}}}));
  }
  // Two threads, each with the streams of its parity, in turns.
  std::vector<std::thread> writers;
  for (int w = 0; w < 2; ++w)
    writers.emplace_back([&, w] {
      for (int e = 0; e < kEvents; ++e)
        for (int s = w; s < kStreams; s += 2) EXPECT_TRUE(streams[static_cast<size_t>(s)]->write(fmt::format("data: {}.{}\n\n", s, e)));
      for (int s = w; s < kStreams; s += 2) streams[static_cast<size_t>(s)]->end();
    });
  for (int s = 0; s < kStreams; ++s) {
    std::string expected;
    for (int e = 0; e < kEvents; ++e) expected += fmt::format("data: {}.{}\n\n", s, e);
    const std::string got = peers[static_cast<size_t>(s)].read_until("\r\n0\r\n\r\n");
    EXPECT_EQ(unchunk(got), expected);
    EXPECT_NE(got.find("X-A: b\r\n"), std::string::npos);
  }
  for (auto& w : writers) w.join();
  EXPECT_TRUE(eventually([&] { return server.counters().streams_open == 0; }));
  EXPECT_EQ(server.counters().clients_gone, 0);
  // Connections are kept.
  peers[0].send(kGet);
  ASSERT_NE(server.next(), nullptr);
}

TEST(EventStream, HeadComesBeforeTheFirstEvent) {
  Holder server;
  RawPeer peer(server.listener->port());
  peer.send(kGet);
  const auto stream = server.next()->stream({});
  EXPECT_NE(peer.read_until("\r\n\r\n").find("Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"), std::string::npos);
  stream->end();
  stream->end();
  EXPECT_FALSE(stream->write("late"));
  EXPECT_EQ(peer.read_until("0\r\n\r\n"), "0\r\n\r\n");
}

TEST(EventStream, ManyWritesBetweenTwoLooksAreOneSend) {
  Holder server;
  RawPeer peer(server.listener->port());
  peer.send(kGet);
  const auto exchange = server.next();
  // The loop is kept busy by a second request, whose callback waits.
  RawPeer blocker(server.listener->port());
  blocker.send(kGet);
  const auto blocking = server.next();
  const auto stream = exchange->stream({});
  peer.read_until("\r\n\r\n");
  std::atomic<bool> inside = false, release = false;
  blocking->on_gone([&] {
    inside = true;
    while (!release) std::this_thread::sleep_for(milliseconds(1));
  });
  blocker.close();
  ASSERT_TRUE(eventually([&] { return inside.load(); }));
  const Counters before = server.counters();
  for (int i = 0; i < 1000; ++i) stream->write("data: x\n\n");
  EXPECT_EQ(stream->unsent(), 9000U);
  release = true;
  std::string got;
  for (int i = 0; i < 20 && got.size() < 9000; ++i) got += peer.read_until("\r\n", milliseconds(2000));
  const Counters after = server.counters();
  EXPECT_LE(after.wake_ups - before.wake_ups, 1);
  EXPECT_LE(after.sends - before.sends, 3);
  EXPECT_TRUE(eventually([&] { return stream->unsent() == 0; }));
}

TEST(EventStream, PingsWhileSilent) {
  Holder server({.ping = milliseconds(100)});
  RawPeer peer(server.listener->port()), plain(server.listener->port());
  peer.send(kGet);
  const auto stream = server.next()->stream({});
  plain.send(kGet);
  const auto other = server.next()->stream({.content_type = "text/plain"});
  const std::string got = peer.read_until(": ping\n\n\r\n8\r\n: ping\n\n");
  EXPECT_NE(got.find("8\r\n: ping\n\n\r\n8\r\n: ping\n\n"), std::string::npos) << got;
  stream->write("data: 1\n\n");
  EXPECT_NE(peer.read_until("data: 1").find("data: 1"), std::string::npos);
  EXPECT_EQ(plain.read_until("ping", milliseconds(300)).find("ping"), std::string::npos) << "only event streams know comments";
}

TEST(EventStream, SlowReaderIsCutAtItsBound) {
  Holder server({.stream_bytes = 100'000});
  RawPeer slow(server.listener->port(), 4096), quick(server.listener->port());
  slow.send(kGet);
  const auto exchange = server.next();
  std::atomic<int> gone = 0;
  exchange->on_gone([&] { ++gone; });
  const auto slow_stream = exchange->stream({});
  quick.send(kGet);
  const auto quick_stream = server.next()->stream({});
  const std::string event = "data: " + std::string(1000, 'x') + "\n\n";
  std::thread reader([&] { EXPECT_EQ(unchunk(quick.read_until("\r\n0\r\n\r\n", milliseconds(20'000))).size(), 2000 * event.size()); });
  int taken = 0;
  bool cut = false;
  for (int i = 0; i < 2000; ++i) {
    if (!cut && slow_stream->write(event)) {
      ++taken;
    } else {
      cut = true;
    }
    EXPECT_LE(slow_stream->unsent(), 100'000U);
    // As fast as its reader gets the processor.
    EXPECT_TRUE(eventually([&] { return quick_stream->unsent() < 50'000; }));
    EXPECT_TRUE(quick_stream->write(event));
    if (i % 20 == 0) std::this_thread::sleep_for(milliseconds(1));
  }
  quick_stream->end();
  reader.join();
  EXPECT_TRUE(cut);
  EXPECT_LT(taken, 1500);
  EXPECT_TRUE(eventually([&] { return gone == 1; }));
  EXPECT_TRUE(slow_stream->gone());
  EXPECT_EQ(slow_stream->unsent(), 0U);
  EXPECT_EQ(server.counters().slow_readers, 1);
  slow.read_to_end();
  EXPECT_EQ(slow.end(), RawPeer::End::kReset) << "a cut answer must not look complete";
}

TEST(EventStream, OneEventAboveTheBoundIsRefused) {
  Holder server({.stream_bytes = 1000});
  RawPeer peer(server.listener->port());
  peer.send(kGet);
  const auto stream = server.next()->stream({});
  EXPECT_FALSE(stream->write(std::string(1001, 'x')));
  peer.read_to_end();
  EXPECT_EQ(peer.end(), RawPeer::End::kReset);
}

TEST(EventStream, DroppedStreamsAreBrokenOff) {
  Holder server;
  for (const char* version : {"1.1", "1.0"}) {
    RawPeer peer(server.listener->port());
    peer.send(fmt::format("GET / HTTP/{}\r\nHost: h\r\n\r\n", version));
    auto stream = server.next()->stream({});
    stream->write("data: 1\n\n");
    peer.read_until("data: 1\n\n");
    stream.reset();
    EXPECT_EQ(peer.read_to_end().find("0\r\n\r\n"), std::string::npos);
    EXPECT_EQ(peer.end(), RawPeer::End::kReset) << version;
  }
}

// The ways to go away, at each stage of a request.
TEST(EventStream, DisconnectIsSeenAtEveryStage) {
  enum Stage { kQueued, kQueuedBehindPipelined, kHeadSent, kStreaming };
  enum Way { kClose, kReset, kHalfClose };
  Holder server({.header_timeout = milliseconds(1000)});
  for (const Stage stage : {kQueued, kQueuedBehindPipelined, kHeadSent, kStreaming})
    for (const Way way : {kClose, kReset, kHalfClose}) {
      SCOPED_TRACE(fmt::format("stage {} way {}", static_cast<int>(stage), static_cast<int>(way)));
      RawPeer peer(server.listener->port());
      peer.send(kGet);
      const auto exchange = server.next();
      ASSERT_NE(exchange, nullptr);
      std::atomic<int> gone = 0;
      exchange->on_gone([&] { ++gone; });
      std::shared_ptr<EventStream> stream;
      // More than is read ahead, and little enough for the system: the end stands behind bytes that stay in the socket.
      if (stage == kQueuedBehindPipelined) peer.send(std::string(84 << 10, 'x'));
      if (stage >= kHeadSent) stream = exchange->stream({});
      if (stage == kStreaming) {
        EXPECT_TRUE(stream->write("data: 1\n\n"));
        peer.read_until("data: 1\n\n");
      }
      EXPECT_FALSE(exchange->gone());
      if (way == kHalfClose) {
        peer.end_sending();
      } else {
        peer.close(way == kReset);
      }
      EXPECT_TRUE(eventually([&] { return gone == 1; }));
      EXPECT_TRUE(exchange->gone());
      if (stream) {
        EXPECT_FALSE(stream->write("data: 2\n\n"));
        stream->end();
      } else {
        exchange->respond({});
      }
      std::atomic<int> late = 0;
      exchange->on_gone([&] { ++late; });
      EXPECT_LE(late, 1);
      EXPECT_EQ(gone, 1);
    }
  EXPECT_TRUE(eventually([&] { return server.counters().connections_open == 0; }));
  EXPECT_EQ(server.counters().clients_gone, 12);
  EXPECT_EQ(server.counters().requests_open, 0);
}

TEST(EventStream, GoneIsNotCalledForAnswersThatWereHandedOver) {
  Holder server;
  std::atomic<int> gone = 0;
  {
    RawPeer peer(server.listener->port());
    peer.send(kGet);
    const auto exchange = server.next();
    exchange->on_gone([&] { ++gone; });
    exchange->respond({.body = "{}"});
    peer.read_until("{}");
    peer.send(kGet);
    const auto second = server.next();
    second->on_gone([&] { ++gone; });
    const auto stream = second->stream({});
    stream->end();
    peer.read_until("0\r\n\r\n");
  }
  EXPECT_TRUE(eventually([&] { return server.counters().connections_open == 0; }));
  EXPECT_EQ(gone, 0);
  EXPECT_EQ(server.counters().clients_gone, 0);
}

// Clients come and go at random while threads write: nothing is lost for those who stay, nothing is left of those who went.
TEST(EventStream, Churn) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(fmt::format("BATON_SEED={}", seed));
  std::mutex mutex;
  std::vector<std::shared_ptr<EventStream>> open;
  std::atomic<bool> stop = false;
  std::atomic<int> gone = 0;
  auto started = Listener::start({.threads = 2}, [&](const std::shared_ptr<Exchange>& exchange) {
    exchange->on_gone([&] { ++gone; });
    const std::lock_guard lock(mutex);
    open.push_back(exchange->stream({}));
  });
  ASSERT_TRUE(started.ok());
  std::vector<std::thread> writers;
  for (int w = 0; w < 2; ++w)
    writers.emplace_back([&, w] {
      std::mt19937 random(seed + static_cast<unsigned>(w));
      while (!stop) {
        std::shared_ptr<EventStream> stream;
        {
          const std::lock_guard lock(mutex);
          if (open.empty()) continue;
          const size_t at = random() % open.size();
          stream = open[at];
          if (random() % 50 == 0) open.erase(open.begin() + static_cast<ptrdiff_t>(at));
        }
        if (!stream->write("data: x\n\n") || random() % 20 == 0) stream->end();
      }
    });
  std::vector<std::thread> clients;
  for (int c = 0; c < 4; ++c)
    clients.emplace_back([&, c] {
      std::mt19937 random(seed + 100 + static_cast<unsigned>(c));
      for (int i = 0; i < 60; ++i) {
        RawPeer peer((*started)->port());
        peer.send(kGet);
        if (random() % 3 == 0) peer.send(std::string_view(kGet).substr(0, random() % 20));
        if (random() % 4 != 0) peer.read_until("data: x", milliseconds(200));
        peer.close(random() % 2 == 0);
      }
    });
  for (auto& c : clients) c.join();
  EXPECT_TRUE(eventually([&] { return (*started)->counters().connections_open == 0; }));
  stop = true;
  for (auto& w : writers) w.join();
  const Counters counters = (*started)->counters();
  EXPECT_EQ(counters.requests_open, 0);
  EXPECT_EQ(counters.streams_open, 0);
  EXPECT_LE(gone, 240);
}

}  // namespace
}  // namespace baton::http
