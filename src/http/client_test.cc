#include "http/client.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "http/event_reader.h"
#include "http/listener.h"
#include "http/raw_peer.h"
#include "http/response_reader.h"

namespace baton::http {
namespace {

using std::chrono::milliseconds;

TEST(Url, Parse) {
  const auto text = [](std::string_view from) {
    const auto url = Url::parse(from);
    return url.ok() ? fmt::format("{} {} {} {}", url->tls ? "tls" : "plain", url->host, url->port, url->path) : std::string("refused");
  };
  EXPECT_EQ(text("http://127.0.0.1:8000/v1?a"), "plain 127.0.0.1 8000 /v1?a");
  EXPECT_EQ(text("HTTPS://h"), "tls h 443 ");
  EXPECT_EQ(text("localhost"), "plain localhost 80 ");
  EXPECT_EQ(text("localhost:81/"), "plain localhost 81 /");
  EXPECT_EQ(text("https://[::1]:9/x#y"), "tls ::1 9 /x");
  EXPECT_EQ(text("http://h?q"), "plain h 80 /?q");
  for (const char* bad : {"", "http://", "ftp://h", "http://h:", "http://h:0", "http://h:65536", "http://h:1x", "http://[::1",
                          "http://[::1]x", "http://u:p@h", "http://h/a b", "http://h/\n"})
    EXPECT_EQ(text(bad), "refused") << bad;
}

TEST(ResponseReader, EverySplitAndEveryCut) {
  struct Case {
    std::string bytes;
    std::string body;
    bool until_end;  // the end of the connection completes it
  };
  const Case cases[] = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", false},
      {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: "
       "chunked\r\n\r\n3\r\nhel\r\n2;x\r\nlo\r\n"
       "0\r\nA: b\r\n\r\n",
       "hello", false},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "", false},
      {"HTTP/1.0 200 OK\r\n\r\nhello", "hello", true},
      {"HTTP/1.1 204 No Content\r\n\r\n", "", false},
  };
  for (const Case& c : cases)
    for (size_t cut = 0; cut <= c.bytes.size(); ++cut) {
      std::string body;
      const auto on_body = [&](std::string_view bytes) { body += bytes; };
      ResponseReader whole(false);
      whole.feed(std::string_view(c.bytes).substr(0, cut), on_body);
      whole.feed(std::string_view(c.bytes).substr(cut), on_body);
      if (c.until_end) whole.end_of_input();
      ASSERT_EQ(whole.state(), ResponseReader::State::kComplete) << c.bytes << " at " << cut << " " << whole.problem();
      ASSERT_EQ(body, c.body);
      ASSERT_EQ(whole.reusable(), !c.until_end);
      // Cut off, it is never complete, unless its end is the end of the connection.
      ResponseReader part(false);
      part.feed(std::string_view(c.bytes).substr(0, cut), on_body);
      part.end_of_input();
      const bool in_body = c.until_end && cut >= c.bytes.find("\r\n\r\n") + 4;
      ASSERT_EQ(part.state() == ResponseReader::State::kComplete, cut == c.bytes.size() || in_body) << c.bytes << " at " << cut;
    }
}

TEST(ResponseReader, RefusesWhatIsNoAnswer) {
  const auto problem = [](std::string_view bytes) {
    ResponseReader reader(false, 1000);
    reader.feed(bytes, [](std::string_view) {});
    return reader.problem();
  };
  EXPECT_NE(problem("SSH-2.0-OpenSSH_9.2\r\n\r\n"), "");
  EXPECT_NE(problem("HTTP/1.1 200 OK\r\nA: " + std::string(2000, 'a')), "");
  EXPECT_NE(problem("HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"), "");
  EXPECT_EQ(problem("HTTP/1.1 200 OK\r\n"), "");
}

TEST(EventReader, EverySplit) {
  const std::string bytes =
      "\xEF\xBB\xBF"
      "data: one\n\n: ping\n\nevent: delta\r\ndata:two\r\ndata:  three\r\nid: 7\r\n\r\ndata\rdata\r\rretry: 5\n\nevent: lost\n\ndata: "
      "[DONE]\n\ndata: part";
  const std::string expected = "|one;delta|two\n three;|\n;|[DONE];";
  for (size_t a = 0; a <= bytes.size(); ++a)
    for (size_t b = a; b <= bytes.size(); b += 5) {
      EventReader reader;
      std::string got;
      const auto gather = [&](const Event& e) {
        got += e.name + "|" + e.data + ";";
        return true;
      };
      for (const auto& [from, to] : {std::pair(size_t{0}, a), std::pair(a, b), std::pair(b, bytes.size())})
        EXPECT_TRUE(reader.feed(std::string_view(bytes).substr(from, to - from), gather));
      ASSERT_EQ(got, expected) << a << " " << b;
      EXPECT_TRUE(reader.partial());
    }
  EventReader bounded(10);
  EXPECT_FALSE(bounded.feed("data: " + std::string(20, 'x'), [](const Event&) { return true; }));
  EXPECT_TRUE(bounded.too_long());
  EventReader stopping;
  int heard = 0;
  EXPECT_FALSE(stopping.feed("data: 1\n\ndata: 2\n\n", [&](const Event&) { return ++heard < 1; }));
  EXPECT_FALSE(stopping.feed("data: 3\n\n", [&](const Event&) { return ++heard < 1; }));
  EXPECT_EQ(heard, 1);
}

TEST(Client, CallsAndStreams) {
  std::atomic<int> on_open = 0;
  auto listener = Listener::start({}, [&](const std::shared_ptr<Exchange>& exchange) {
    const Request& r = exchange->request();
    if (r.path == "/stream") {
      const auto stream = exchange->stream({});
      for (int i = 0; i < 1000; ++i) stream->write(fmt::format("data: {}\n\n", i));
      stream->end();
    } else if (r.path == "/refuse") {
      exchange->respond({.status = 429, .headers = {{"Retry-After", "1"}}, .body = R"({"error":1})"});
    } else {
      exchange->respond(
          {.body = r.method + " " + r.query + " " + std::string(r.header("X-A")) + " " + std::string(r.header("Host")) + r.body});
    }
    ++on_open;
  });
  ASSERT_TRUE(listener.ok());
  Client client({.port = (*listener)->port()});
  auto answer = client.call({.method = "POST", .target = "/x?y", .headers = {{"X-A", "b"}}, .body = "body"});
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->body, fmt::format("POST y b 127.0.0.1:{}body", (*listener)->port()));
  EXPECT_EQ(answer->header("content-type"), "application/json");
  answer = client.call({.method = "HEAD"});
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->body, "");
  std::string events;
  const auto gather = [&](std::string_view bytes) {
    events += bytes;
    return true;
  };
  answer = client.stream({.target = "/stream"}, gather);
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_TRUE(events.starts_with("data: 0\n\ndata: 1\n\n") && events.ends_with("data: 999\n\n"));
  events.clear();
  answer = client.stream({.target = "/refuse"}, gather);
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status, 429);
  EXPECT_EQ(answer->body, R"({"error":1})");
  EXPECT_EQ(answer->header("retry-after"), "1");
  EXPECT_EQ(events, "");
  EXPECT_EQ((*listener)->counters().connections_accepted, 1);

  for (const ClientRequest& bad :
       {ClientRequest{.target = "/a b"}, ClientRequest{.method = "G\r\n"}, ClientRequest{.headers = {{"A", "b\r\nC: d"}}}})
    EXPECT_FALSE(client.call(bad).ok());
  // The server goes and comes back: a kept connection that has died is not used.
  const uint16_t port = (*listener)->port();
  (*listener).reset();
  EXPECT_FALSE(client.call({}).ok());
  listener = Listener::start({.port = port}, [](const std::shared_ptr<Exchange>& e) { e->respond({.body = "back"}); });
  ASSERT_TRUE(listener.ok()) << listener.error().message;
  answer = client.call({.method = "POST"});
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->body, "back");
}

// A server of one connection that says what the test wants.
class Script {
 public:
  explicit Script(std::string answer, bool reset = false) : answer_(std::move(answer)), reset_(reset) {
    listening_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof any;
    if (::bind(listening_, reinterpret_cast<sockaddr*>(&any), size) != 0 || ::listen(listening_, 4) != 0) std::abort();
    ::getsockname(listening_, reinterpret_cast<sockaddr*>(&any), &size);
    port = ntohs(any.sin_port);
    thread_ = std::thread([this] {
      const int fd = ::accept(listening_, nullptr, nullptr);
      char buffer[1024];
      if (::recv(fd, buffer, sizeof buffer, 0) > 0) ::send(fd, answer_.data(), answer_.size(), MSG_NOSIGNAL);
      const linger option{1, 0};
      if (reset_) ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &option, sizeof option);
      ::close(fd);
    });
  }
  ~Script() {
    thread_.join();
    ::close(listening_);
  }
  uint16_t port = 0;

 private:
  std::string answer_;
  bool reset_;
  int listening_ = -1;
  std::thread thread_;
};

TEST(Client, AnAnswerThatBreaksOffIsAnError) {
  const auto error = [](const std::string& answer, bool reset = false) {
    const Script server(answer, reset);
    const auto result = Client({.port = server.port}).call({});
    return result.ok() ? std::string() : result.error().message;
  };
  EXPECT_NE(error("").find("closed the connection without an answer"), std::string::npos);
  EXPECT_NE(error("HTTP/1.1 200 OK\r\nContent-Le"), "");
  EXPECT_NE(error("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell").find("broke off after 4 bytes"), std::string::npos);
  EXPECT_NE(error("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").find("broke off after 5 bytes"),
            std::string::npos);
  EXPECT_NE(error("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n"), "");
  EXPECT_NE(error("nonsense\r\n\r\n").find("not an HTTP answer"), std::string::npos);
  EXPECT_EQ(error("HTTP/1.1 200 OK\r\n\r\nhello"), "");
  EXPECT_EQ(error("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"), "");
}

TEST(Client, TimeoutsAndStops) {
  std::mutex mutex;
  std::vector<std::shared_ptr<Exchange>> held;
  auto listener = Listener::start({}, [&](std::shared_ptr<Exchange> exchange) {
    const std::lock_guard lock(mutex);
    held.push_back(std::move(exchange));
  });
  ASSERT_TRUE(listener.ok());
  const uint16_t port = (*listener)->port();
  auto answer = Client({.port = port, .silence_timeout = milliseconds(50)}).call({});
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message.find("does not answer"), std::string::npos);
  std::atomic<bool> going = true;
  std::thread stopper([&] {
    std::this_thread::sleep_for(milliseconds(100));
    going = false;
  });
  answer = Client({.port = port}).call({.keep_going = [&] { return going.load(); }});
  stopper.join();
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().message, "The call was stopped.");
  EXPECT_NE(Client({.host = "no.such.host.invalid"}).call({}).error().message.find("cannot be resolved"), std::string::npos);
  const Script closed("");
  listener->reset();
  EXPECT_NE(Client({.port = port}).call({}).error().message.find("refused"), std::string::npos);
  RawPeer(closed.port).send("x");
}

}  // namespace
}  // namespace baton::http
