// Answers of every kind, whole, in pieces, cut and wrong; and runs against a server in this process. Nothing depends on how long it takes.
#include "load/runner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <mutex>

#include "http/listener.h"
#include "http/test_certificates.h"
#include "load/answer_reader.h"

namespace baton::load {
namespace {

const std::string kText = "data: {\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":null}]}\n\n";
const std::string kEnd = "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n";
const std::string kUsage =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n";
const std::string kDone = "data: [DONE]\n\n";

// `pieces` arrive at 1, 2, 3, ... seconds.
Record read(const std::vector<std::string>& pieces, int status = 200) {
  Record r;
  AnswerReader reader(r);
  double at = 0;
  for (const std::string& p : pieces) reader.feed(status, p, ++at);
  reader.end(status);
  return r;
}

TEST(Answers, AreReadWithTheTimesOfTheirPieces) {
  const Record r = read({kText, kText + kText.substr(0, 20), kText.substr(20), kEnd, kUsage, kDone});
  EXPECT_EQ(r.failure, "");
  EXPECT_EQ(r.chunks, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(r.input_tokens, 7);
  EXPECT_EQ(r.cached_tokens, 4);
  EXPECT_EQ(r.tokens(), 3);
  EXPECT_EQ(r.finish, "length");
  EXPECT_EQ(r.ttft(), 1);
  EXPECT_EQ(r.tpot(), 1);
  // However the bytes are cut.
  const std::string all = kText + kText + kEnd + kUsage + kDone;
  for (size_t at = 0; at <= all.size(); ++at) EXPECT_EQ(read({all.substr(0, at), all.substr(at)}).chunks.size(), 2U) << at;
}

TEST(Answers, OfChatsBeginWithTheirFirstText) {
  const auto delta = [](const std::string& d) { return "data: {\"choices\":[{\"delta\":" + d + "}]}\n\n"; };
  const Record r = read({delta(R"({"role":"assistant","content":""})"), delta(R"({"reasoning_content":"r"})"), delta(R"({"content":"c"})"),
                         delta(R"({"tool_calls":[{"index":0}]})"), kEnd, kDone});
  EXPECT_EQ(r.failure, "");
  EXPECT_EQ(r.chunks, (std::vector<double>{2, 3, 4}));
  EXPECT_EQ(r.output_tokens, -1);
  EXPECT_EQ(r.tokens(), 3);
}

TEST(Answers, ThatAreNotWholeFail) {
  EXPECT_EQ(read({kText, kText}).failure, "cut short");
  EXPECT_EQ(read({kText, kText.substr(0, 30)}).failure, "cut short");
  EXPECT_EQ(read({kText, kDone.substr(0, 8)}).failure, "cut short");
  EXPECT_EQ(read({}).failure, "cut short");
  EXPECT_EQ(read({kEnd, kDone}).failure, "no token");
  EXPECT_EQ(read({kText, "data: {\"error\":{\"message\":\"boom\"}}\n\n", kDone}).failure, "error event");
  EXPECT_EQ(read({kText, "event: error\ndata: {\"message\":\"boom\"}\n\n"}).message, "boom");
  EXPECT_EQ(read({kText, "data: {\"choices\":[{\"finish_reason\":\"error\"}]}\n\n", kDone}).failure, "error event");
  EXPECT_EQ(read({kText, "data: nonsense\n\n", kDone}).failure, "bad answer");
  const Record busy = read({"{\"error\":{\"mess", "age\":\"busy\"}}"}, 429);
  EXPECT_EQ(busy.failure, "http 429");
  EXPECT_EQ(busy.message, "busy");
  // A last event without [DONE], as some servers end: the finish_reason tells that it is whole.
  EXPECT_EQ(read({kText, kEnd}).failure, "");
}

// Answers each prompt "KIND COUNT" in its way.
class Server {
 public:
  explicit Server(http::ListenerOptions options = {}) {
    listener_ = http::Listener::start(std::move(options), [this](const std::shared_ptr<http::Exchange>& e) { handle(*e); }).value();
  }
  http::Url url(bool tls = false) const { return {.tls = tls, .host = tls ? "localhost" : "127.0.0.1", .port = listener_->port()}; }
  std::vector<std::string> seen() {
    const std::lock_guard lock(mutex_);
    return seen_;
  }

 private:
  void handle(http::Exchange& exchange) {
    const boost::json::value body = boost::json::parse(exchange.request().body);
    const std::string prompt(body.at("prompt").as_string());
    {
      const std::lock_guard lock(mutex_);
      seen_.push_back(exchange.request().body);
    }
    if (prompt == "busy") return exchange.respond({.status = 429, .body = "{\"error\":{\"message\":\"busy\"}}"});
    const auto stream = exchange.stream({});
    for (int i = 0; i < 5; ++i) stream->write(kText);
    if (prompt == "cut") return;  // dropped: the connection is reset, or ends without its last chunk
    if (prompt != "silent") stream->write(kEnd + kUsage + kDone);
    if (prompt == "hold") {
      const std::lock_guard lock(mutex_);
      held_.push_back(stream);
      return;
    }
    stream->end();
  }

  std::mutex mutex_;
  std::vector<std::string> seen_;
  std::vector<std::shared_ptr<http::EventStream>> held_;
  std::unique_ptr<http::Listener> listener_;
};

Workload prompts(const std::vector<std::string>& texts) {
  Workload w;
  for (const std::string& t : texts) w.push_back({.turns = {{.prompt = {.text = t}, .output_tokens = 5}}});
  return w;
}

RunOptions options_for(const http::Url& url) {
  RunOptions o;
  o.url = url;
  o.request = {.host = "h", .target = "/v1/completions", .model = "m"};
  return o;
}

TEST(Runs, RecordEveryAnswerAndEveryFailure) {
  Server server;
  RunOptions o = options_for(server.url());
  o.concurrency = 2;
  const auto run = load::run(prompts({"good", "cut", "silent", "busy", "good", "good"}), {}, o);
  ASSERT_TRUE(run.ok()) << run.error().message;
  ASSERT_EQ(run->records.size(), 6U);
  const std::vector<std::string> kinds = {"", "connection", "cut short", "http 429", "", ""};
  for (size_t i = 0; i < 6; ++i) {
    const Record& r = run->records[i];
    EXPECT_EQ(r.failure, kinds[i]) << i << ": " << r.message;
    EXPECT_EQ(r.conversation, static_cast<int64_t>(i));
    EXPECT_LE(r.intended, r.sent);
    EXPECT_LE(r.sent, r.end);
    if (!r.good()) continue;
    EXPECT_EQ(r.chunks.size(), 5U);
    EXPECT_TRUE(std::is_sorted(r.chunks.begin(), r.chunks.end()));
    EXPECT_LE(r.sent, r.chunks.front());
    EXPECT_LE(r.chunks.back(), r.end);
  }
  EXPECT_EQ(run->unsent, 0);
  EXPECT_FALSE(run->stopped);
  EXPECT_LE(run->most_at_once, 2);
}

TEST(Runs, KeepConnectionsAndSendEachRequestOnce) {
  Server server;
  RunOptions o = options_for(server.url());
  o.concurrency = 3;
  const auto run = load::run(prompts(std::vector<std::string>(200, "good")), {}, o);
  ASSERT_TRUE(run.ok());
  for (const Record& r : run->records) EXPECT_EQ(r.failure, "") << r.message;
  EXPECT_LE(run->connections, 3);
  EXPECT_EQ(server.seen().size(), 200U);
}

TEST(Runs, InAnOpenLoopCountFromTheArrival) {
  Server server;
  RunOptions o = options_for(server.url());
  o.concurrency = 1;
  // All arrive at once and there is one place: what waits for it waits in its own latency.
  const auto run = load::run(prompts(std::vector<std::string>(20, "good")), std::vector<double>(20, 0.01), o);
  ASSERT_TRUE(run.ok());
  for (size_t i = 0; i < 20; ++i) {
    EXPECT_EQ(run->records[i].failure, "");
    EXPECT_EQ(run->records[i].intended, 0.01);
    if (i > 0) {
      EXPECT_GE(run->records[i].sent, run->records[i - 1].chunks.back());
    }
    EXPECT_GE(run->records[i].ttft(), run->records[i].sent - 0.01);
  }
}

TEST(Runs, PlayTurnsInOrderAndEndAConversationThatFails) {
  Server server;
  Workload w = prompts({"good", "busy"});
  w[0].turns.push_back({.prompt = {.text = "good"}, .output_tokens = 5, .delay_s = 0.02});
  w[1].turns.push_back({.prompt = {.text = "good"}, .output_tokens = 5});
  const auto run = load::run(w, {}, options_for(server.url()));
  ASSERT_TRUE(run.ok());
  ASSERT_EQ(run->records.size(), 3U);
  EXPECT_EQ(run->unsent, 1);
  EXPECT_EQ(run->records[1].turn, 1);
  EXPECT_DOUBLE_EQ(run->records[1].intended, run->records[0].end + 0.02);
  EXPECT_GE(run->records[1].sent, run->records[1].intended);
}

TEST(Runs, StopWhenToldAndCountWhatWasNotSent) {
  Server server;
  RunOptions o = options_for(server.url());
  o.concurrency = 1;
  o.on_progress = [](int64_t ended) { return ended < 2; };
  const auto run = load::run(prompts({"good", "good", "hold", "good"}), {}, o);
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->records.size(), 2U);
  EXPECT_EQ(run->unsent, 2);
  EXPECT_TRUE(run->stopped);
  // A silent answer ends by itself after a while.
  o.on_progress = {};
  o.silence_s = 0.5;
  const auto silent = load::run(prompts({"hold"}), {}, o);
  ASSERT_TRUE(silent.ok());
  EXPECT_EQ(silent->records.at(0).failure, "timeout");
}

TEST(Runs, SpeakTls) {
  http::TestCertificates certificates;
  certificates.make("ca", "", "");
  certificates.make("server", "ca", "DNS:localhost");
  Server server({.tls = http::TlsFiles{.certificate = certificates.certificate("server"), .key = certificates.key("server")}});
  RunOptions o = options_for(server.url(true));
  o.concurrency = 2;
  o.tls = {.ca_file = certificates.certificate("ca")};
  const auto run = load::run(prompts(std::vector<std::string>(10, "good")), {}, o);
  ASSERT_TRUE(run.ok()) << run.error().message;
  for (const Record& r : run->records) EXPECT_EQ(r.failure, "") << r.message;
  o.tls = {};
  const auto stranger = load::run(prompts({"good"}), {}, o);
  ASSERT_TRUE(stranger.ok());
  EXPECT_EQ(stranger->records.at(0).failure, "connect");
  EXPECT_NE(stranger->records.at(0).message.find("TLS"), std::string::npos) << stranger->records.at(0).message;
}

TEST(Runs, NeedAServer) {
  uint16_t port = 0;
  { port = Server().url().port; }
  const auto run = load::run(prompts({"good"}), {}, options_for({.host = "127.0.0.1", .port = port}));
  ASSERT_FALSE(run.ok());
  EXPECT_NE(run.error().message.find("127.0.0.1"), std::string::npos);
}

}  // namespace
}  // namespace baton::load
