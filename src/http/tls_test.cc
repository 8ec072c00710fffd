#include "http/tls.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "http/client.h"
#include "http/listener.h"
#include "http/raw_peer.h"
#include "http/test_certificates.h"

namespace baton::http {
namespace {

using std::chrono::milliseconds;

class Tls : public testing::Test {
 protected:
  void SetUp() override {
    certificates.make("ca", "", "");
    certificates.make("server", "ca", "DNS:localhost,IP:127.0.0.1");
    certificates.make("client", "ca", "");
    certificates.make("other_ca", "", "");
    certificates.make("stranger", "other_ca", "");
    certificates.make("elsewhere", "ca", "DNS:example.com");
    certificates.make("old", "ca", "DNS:localhost", -1);
  }

  TlsFiles files(const std::string& name) const { return {.certificate = certificates.certificate(name), .key = certificates.key(name)}; }

  std::unique_ptr<Listener> serve(TlsFiles tls, Limits limits = {}) {
    auto started = Listener::start({.limits = limits, .tls = std::move(tls)}, [this](const std::shared_ptr<Exchange>& exchange) {
      const Request& r = exchange->request();
      if (r.path == "/stream") {
        const auto stream = exchange->stream({});
        for (int i = 0; i < 100; ++i) stream->write(fmt::format("data: {}\n\n", i));
        stream->end();
      } else if (r.path == "/hold") {
        const std::lock_guard lock(mutex);
        held.push_back(exchange);
      } else {
        exchange->respond({.content_type = "text/plain", .body = r.method + r.body});
      }
    });
    EXPECT_TRUE(started.ok()) << started.error().message;
    return started.ok() ? std::move(*started) : nullptr;
  }
  ClientOptions client(const Listener& listener, const std::string& host = "localhost") const {
    return {.host = host, .port = listener.port(), .tls = true, .tls_options = {.ca_file = certificates.certificate("ca")}};
  }
  std::shared_ptr<Exchange> next() {
    std::shared_ptr<Exchange> exchange;
    eventually([&] {
      const std::lock_guard lock(mutex);
      if (held.empty()) return false;
      exchange = std::move(held.front());
      held.erase(held.begin());
      return true;
    });
    return exchange;
  }

  TestCertificates certificates;
  std::mutex mutex;
  std::vector<std::shared_ptr<Exchange>> held;
};

TEST_F(Tls, CallsBodiesAndStreams) {
  const auto listener = serve(files("server"));
  for (const char* host : {"localhost", "127.0.0.1"}) {
    Client c(client(*listener, host));
    const std::string body(3 << 20, 'b');
    for (int i = 0; i < 3; ++i) {
      const auto answer = c.call({.method = "POST", .target = "/x", .body = body});
      ASSERT_TRUE(answer.ok()) << answer.error().message;
      EXPECT_EQ(answer->body, "POST" + body);
    }
    std::string events;
    const auto done = c.stream({.target = "/stream"}, [&](std::string_view bytes) {
      events += bytes;
      return true;
    });
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_TRUE(events.ends_with("data: 99\n\n"));
  }
  EXPECT_EQ(listener->counters().connections_accepted, 2) << "connections are kept";
  EXPECT_EQ(listener->counters().tls_failures, 0);
}

TEST_F(Tls, ClientsBelieveOnlyTheRightServer) {
  const auto problem = [&](const std::string& name, const std::string& host, ClientTls options) {
    const auto listener = serve(files(name));
    Client c({.host = host, .port = listener->port(), .tls = true, .tls_options = std::move(options)});
    const auto answer = c.call({});
    return answer.ok() ? std::string() : answer.error().message;
  };
  const ClientTls ours{.ca_file = certificates.certificate("ca")};
  EXPECT_EQ(problem("server", "localhost", ours), "");
  EXPECT_NE(problem("elsewhere", "localhost", ours).find("mismatch"), std::string::npos);
  EXPECT_NE(problem("elsewhere", "127.0.0.1", ours).find("mismatch"), std::string::npos);
  EXPECT_NE(problem("old", "localhost", ours).find("expired"), std::string::npos);
  EXPECT_NE(problem("server", "localhost", {.ca_file = certificates.certificate("other_ca")}).find("no TLS connection"), std::string::npos);
  EXPECT_NE(problem("server", "localhost", {}).find("no TLS connection"), std::string::npos);
  EXPECT_EQ(problem("elsewhere", "localhost", {.verify = false}), "");
}

TEST_F(Tls, ClientCertificates) {
  TlsFiles asking = files("server");
  asking.client_ca = certificates.certificate("ca");
  const auto listener = serve(asking);
  ClientOptions options = client(*listener);
  EXPECT_FALSE(Client(options).call({}).ok()) << "without a certificate";
  options.tls_options.certificate = certificates.certificate("stranger");
  options.tls_options.key = certificates.key("stranger");
  EXPECT_FALSE(Client(options).call({}).ok()) << "signed by another authority";
  EXPECT_TRUE(eventually([&] { return listener->counters().tls_failures == 2; }));
  EXPECT_EQ(listener->counters().requests, 0);
  options.tls_options.certificate = certificates.certificate("client");
  options.tls_options.key = certificates.key("client");
  for (int i = 0; i < 3; ++i) {
    const auto answer = Client(options).call({});
    EXPECT_TRUE(answer.ok()) << answer.error().message;
  }
}

TEST_F(Tls, ReloadsWithoutDisturbingAnyone) {
  const TlsFiles used{.certificate = certificates.file("live.crt", ""), .key = certificates.file("live.key", "")};
  const auto put = [&](const std::string& name) {
    std::filesystem::copy_file(certificates.certificate(name), used.certificate, std::filesystem::copy_options::overwrite_existing);
    std::filesystem::copy_file(certificates.key(name), used.key, std::filesystem::copy_options::overwrite_existing);
  };
  put("elsewhere");
  const auto listener = serve(used);
  ClientOptions blind = client(*listener);
  blind.tls_options.verify = false;
  Client early(blind);
  EXPECT_TRUE(early.call({}).ok());
  EXPECT_FALSE(Client(client(*listener)).call({}).ok());
  put("server");
  EXPECT_TRUE(listener->reload_tls().ok());
  EXPECT_TRUE(Client(client(*listener)).call({}).ok());
  EXPECT_TRUE(early.call({}).ok());
  // A broken file changes nothing.
  certificates.file("live.crt", "not a certificate");
  const Status broken = listener->reload_tls();
  ASSERT_FALSE(broken.ok());
  EXPECT_NE(broken.error().message.find("live.crt"), std::string::npos) << broken.error().message;
  EXPECT_TRUE(Client(client(*listener)).call({}).ok());
  EXPECT_EQ(listener->counters().connections_accepted, 4);
}

TEST_F(Tls, FilesThatCannotBeUsed) {
  const auto problem = [](TlsFiles tls) {
    const auto started = Listener::start({.tls = std::move(tls)}, [](auto) {});
    return started.ok() ? std::string() : started.error().message;
  };
  EXPECT_NE(problem({.certificate = "/none.crt", .key = "/none.key"}).find("Cannot use the certificate '/none.crt': No such file"),
            std::string::npos)
      << problem({.certificate = "/none.crt", .key = "/none.key"});
  EXPECT_NE(problem({.certificate = certificates.certificate("server"), .key = certificates.key("client")}).find("key values mismatch"),
            std::string::npos);
  TlsFiles no_ca = files("server");
  no_ca.client_ca = certificates.file("empty", "");
  EXPECT_NE(problem(no_ca).find("client authorities"), std::string::npos);
  const auto plain = Listener::start({}, [](auto) {});
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE((*plain)->reload_tls().ok());
}

TEST_F(Tls, OtherProtocolsOnThePort) {
  const auto listener = serve(files("server"), {.header_timeout = milliseconds(200)});
  RawPeer plain(listener->port()), silent(listener->port()), garbage(listener->port());
  plain.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
  plain.read_to_end();
  EXPECT_NE(plain.end(), RawPeer::End::kOpen);
  garbage.send("\x16\x03\x01\xff\xff" + std::string(1000, '\xee'));
  garbage.read_to_end();
  EXPECT_NE(garbage.end(), RawPeer::End::kOpen);
  EXPECT_EQ(silent.read_to_end(), "") << "a handshake has header_timeout";
  EXPECT_EQ(silent.end(), RawPeer::End::kClosed);
  EXPECT_TRUE(eventually([&] { return listener->counters().tls_failures == 3; }));
  // And TLS where there is none.
  const auto open = Listener::start({}, [](const std::shared_ptr<Exchange>& e) { e->respond({}); });
  ASSERT_TRUE(open.ok());
  const auto answer = Client({.host = "localhost", .port = (*open)->port(), .tls = true}).call({});
  ASSERT_FALSE(answer.ok());
  EXPECT_NE(answer.error().message.find("no TLS connection"), std::string::npos) << answer.error().message;
}

TEST_F(Tls, DisconnectsAndSlowReaders) {
  const auto listener = serve(files("server"), {.stream_bytes = 100'000});
  std::atomic<int> gone = 0;
  std::thread caller([&] {
    Client c(client(*listener));
    // Goes away at the first event.
    EXPECT_TRUE(c.stream({.target = "/hold"}, [](std::string_view) { return false; }).ok());
  });
  auto exchange = next();
  ASSERT_NE(exchange, nullptr);
  exchange->on_gone([&] { ++gone; });
  auto stream = exchange->stream({});
  EXPECT_TRUE(stream->write("data: 1\n\n"));
  caller.join();
  EXPECT_TRUE(eventually([&] { return gone == 1; }));

  // One that never reads: the call below waits for a go-ahead inside its callback.
  std::atomic<bool> inside = false, release = false;
  std::string error;
  std::thread stuck([&] {
    Client c(client(*listener));
    const auto answer = c.stream({.target = "/hold"}, [&](std::string_view) {
      inside = true;
      while (!release) std::this_thread::sleep_for(milliseconds(1));
      return true;
    });
    if (!answer.ok()) error = answer.error().message;
  });
  exchange = next();
  ASSERT_NE(exchange, nullptr);
  stream = exchange->stream({});
  EXPECT_TRUE(stream->write("data: 1\n\n"));
  EXPECT_TRUE(eventually([&] { return inside.load(); }));
  const std::string event = "data: " + std::string(10'000, 'x') + "\n\n";
  int taken = 0;
  while (stream->write(event) && taken < 100'000) {
    ++taken;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  EXPECT_LT(taken, 100'000);
  release = true;
  stuck.join();
  EXPECT_NE(error.find("the connection was lost in the middle of the answer"), std::string::npos) << error;
  EXPECT_EQ(listener->counters().slow_readers, 1);
}

TEST_F(Tls, ABrokenOffStreamIsAnError) {
  const auto listener = serve(files("server"));
  std::string error;
  std::thread caller([&] {
    const auto answer = Client(client(*listener)).stream({.target = "/hold"}, [](std::string_view) { return true; });
    if (!answer.ok()) error = answer.error().message;
  });
  const auto exchange = next();
  ASSERT_NE(exchange, nullptr);
  exchange->stream({})->write("data: 1\n\n");  // and dropped
  caller.join();
  EXPECT_NE(error.find("the connection was lost"), std::string::npos) << error;
}

}  // namespace
}  // namespace baton::http
