#include "http/request_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "base/test_seed.h"

namespace baton::http {
namespace {

using State = RequestReader::State;

struct Outcome {
  std::vector<Request> requests;
  int refused = 0;
  std::string why;
  bool partial = false;
};

Outcome read_pieces(const std::vector<std::string_view>& pieces, const Limits& limits = {}) {
  RequestReader reader(limits);
  Outcome outcome;
  for (std::string_view piece : pieces)
    while (!piece.empty() && reader.state() != State::kRefused) {
      piece.remove_prefix(reader.feed(piece));
      if (reader.state() == State::kComplete) outcome.requests.push_back(reader.take());
    }
  if (reader.state() == State::kRefused) {
    outcome.refused = reader.refusal().status;
    outcome.why = reader.refusal().message;
  }
  outcome.partial = reader.state() == State::kHead || reader.state() == State::kBody;
  return outcome;
}

int status_of(std::string_view bytes, const Limits& limits = {}) { return read_pieces({bytes}, limits).refused; }

std::string text(const Outcome& o) {
  std::string out = fmt::format("{} {} {}\n", o.refused, o.why, o.partial);
  for (const Request& r : o.requests) {
    out += fmt::format("{} {} ? {} [{}]", r.method, r.path, r.query, r.body);
    for (const auto& [name, value] : r.headers) out += fmt::format(" {}={}", name, value);
    out += '\n';
  }
  return out;
}

TEST(RequestReader, HeadAndBody) {
  const Outcome o = read_pieces({"POST /v1/x?a=%20&b HTTP/1.1\r\nHost: h\r\nX-A:  1 \r\nx-a: 2\r\nContent-Length: 4\r\n\r\nbody"});
  ASSERT_EQ(o.requests.size(), 1);
  const Request& r = o.requests[0];
  EXPECT_EQ(r.method, "POST");
  EXPECT_EQ(r.path, "/v1/x");
  EXPECT_EQ(r.query, "a=%20&b");
  EXPECT_EQ(r.body, "body");
  EXPECT_EQ(r.header("X-a"), "1");
  EXPECT_EQ(r.header("absent"), "");
}

TEST(RequestReader, ChunkedBodyWithExtensionsAndTrailers) {
  const Outcome o =
      read_pieces({"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n4;a=b\r\nbody\r\n0b\r\n and "
                   "more..\r\n0\r\nAuthorization: x\r\n\r\n"});
  ASSERT_EQ(o.requests.size(), 1) << text(o);
  EXPECT_EQ(o.requests[0].body, "body and more..");
  EXPECT_EQ(o.requests[0].header("Authorization"), "") << "a trailer passes for a field of the head";
}

TEST(RequestReader, Targets) {
  const auto path = [](std::string_view target, std::string_view method = "GET") {
    const Outcome o = read_pieces({fmt::format("{} {} HTTP/1.1\r\nHost: h\r\n\r\n", method, target)});
    return o.requests.size() == 1 ? o.requests[0].path + "|" + o.requests[0].query : fmt::format("{}", o.refused);
  };
  EXPECT_EQ(path("/"), "/|");
  EXPECT_EQ(path("/a?b?c"), "/a|b?c");
  EXPECT_EQ(path("/?"), "/|");
  EXPECT_EQ(path("http://h:80/a?b"), "/a|b");
  EXPECT_EQ(path("HTTPS://h"), "/|");
  EXPECT_EQ(path("http://h?q"), "/|q");
  EXPECT_EQ(path("*", "OPTIONS"), "*|");
  EXPECT_EQ(path("*"), "400");
  EXPECT_EQ(path("h:80", "CONNECT"), "501");
  EXPECT_EQ(path("relative"), "400");
  EXPECT_EQ(path("ftp://h/a"), "400");
}

TEST(RequestReader, RefusesWhatIsNotARequest) {
  EXPECT_EQ(status_of("\x16\x03\x01\x02\x00\x01"), 400);
  EXPECT_EQ(status_of("GET\r\n\r\n"), 400);
  for (const char* bare :
       {"GET / HTTP/1.1\nHost: h\n\n", "GET / HTTP/1.1\r\nHost: h\n\n", "GET / HTTP/1.1\r\nHost: h\r\nA: b\nC: d\r\n\r\n"})
    EXPECT_EQ(status_of(bare), 400) << bare;
  EXPECT_EQ(status_of("GET / HTTP/2.0\r\nHost: h\r\n\r\n"), 505);
  EXPECT_EQ(status_of("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost : h\r\n\r\n"), 400) << "space before the colon";
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: h\r\nA\r\n\r\n"), 400);
  EXPECT_EQ(status_of(std::string_view("GET / HTTP/1.1\r\nHost: h\r\nA: \0\r\n\r\n", 38)), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n\r\n"), 400) << "no Host";
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\n\r\n"), 0);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: h\r\nExpect: tea\r\n\r\n"), 417);
  EXPECT_EQ(status_of(std::string(100, '\n')), 400);
}

// Where two servers could disagree about the end of a request, the second of them may take a body for a request.
TEST(RequestReader, RefusesFramingThatCanBeReadInTwoWays) {
  const auto post = [](std::string_view fields, std::string_view version = "1.1") {
    return status_of(fmt::format("POST / HTTP/{}\r\nHost: h\r\n{}\r\n\r\n", version, fields));
  };
  EXPECT_EQ(post("Content-Length: 5\r\nTransfer-Encoding: chunked"), 400);
  EXPECT_EQ(post("Transfer-Encoding: chunked\r\nContent-Length: 5"), 400);
  EXPECT_EQ(post("Transfer-Encoding: gzip\r\nContent-Length: 5"), 400);
  EXPECT_EQ(post("Transfer-Encoding: gzip"), 501);
  EXPECT_EQ(post("Transfer-Encoding: gzip, chunked"), 501);
  EXPECT_EQ(post("Transfer-Encoding: chunked, identity"), 501);
  EXPECT_EQ(post("Transfer-Encoding: xchunked"), 501);
  EXPECT_NE(post("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked"), 0);
  EXPECT_NE(post("Transfer-Encoding: identity\r\nTransfer-Encoding: chunked"), 0);
  EXPECT_EQ(post("Transfer-Encoding: chunked", "1.0"), 400);
  EXPECT_EQ(post("Content-Length: 5\r\nContent-Length: 6"), 400);
  EXPECT_EQ(post("Content-Length: 5, 6"), 400);
  EXPECT_EQ(post("Content-Length: -1"), 400);
  EXPECT_EQ(post("Content-Length: +1"), 400);
  EXPECT_EQ(post("Content-Length: 0x5"), 400);
  EXPECT_EQ(post("Content-Length: 99999999999999999999999"), 400);
  for (const char* chunk : {"x\r\n", "-1\r\n", "+1\r\n", "0x1\r\n", "10000000000000000\r\n", "1\nab", "1\r\nab\r\n", "1 \r\na\r\n"})
    EXPECT_NE(status_of(fmt::format("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n", chunk)), 0) << chunk;
}

TEST(RequestReader, Limits) {
  const Limits limits{.header_bytes = 1000, .body_bytes = 100};
  const auto head = [](size_t bytes) {
    std::string h = "GET / HTTP/1.1\r\nHost: h\r\nX: ";
    h.resize(bytes - 4, 'a');
    return h + "\r\n\r\n";
  };
  EXPECT_EQ(status_of(head(1000), limits), 0);
  EXPECT_EQ(status_of(head(1001), limits), 431);
  EXPECT_EQ(status_of("GET /" + std::string(2000, 'a'), limits), 431);
  // A byte at a time, without an end.
  RequestReader slow(limits);
  size_t fed = 0;
  while (slow.state() != State::kRefused && fed < 5000) fed += slow.feed(fed < 20 ? head(100).substr(fed, 1) : "a");
  EXPECT_LE(fed, 1001);
  EXPECT_EQ(slow.refusal().status, 431);

  const std::string post = "POST / HTTP/1.1\r\nHost: h\r\n";
  EXPECT_EQ(status_of(post + "Content-Length: 100\r\n\r\n" + std::string(100, 'b'), limits), 0);
  EXPECT_EQ(status_of(post + "Content-Length: 101\r\n\r\n", limits), 413) << "before any of the body has come";
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(status_of(chunked + "64\r\n" + std::string(100, 'b') + "\r\n0\r\n\r\n", limits), 0);
  EXPECT_EQ(status_of(chunked + "65\r\nb", limits), 413);
  EXPECT_EQ(status_of(chunked + "32\r\n" + std::string(50, 'b') + "\r\n33\r\nb", limits), 413);
  EXPECT_NE(status_of(chunked + "1;" + std::string(2000, 'e'), limits), 0) << "an endless chunk extension";
  EXPECT_NE(status_of(chunked + "0\r\nX: " + std::string(2000, 'e'), limits), 0) << "endless trailers";
}

TEST(RequestReader, Pipelined) {
  const Outcome o =
      read_pieces({"GET /1 HTTP/1.1\r\nHost: h\r\n\r\n\r\nPOST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nabGET /3 HTTP/1.1\r\n"
                   "Host: h\r\n\r\nGET /4"});
  ASSERT_EQ(o.requests.size(), 3) << text(o);
  EXPECT_EQ(o.requests[1].body, "ab");
  EXPECT_EQ(o.requests[2].path, "/3");
  EXPECT_TRUE(o.partial);
}

// However the bytes are cut, the outcome is the same.
TEST(RequestReader, EverySplit) {
  const std::vector<std::string> inputs = {
      "POST /a?b HTTP/1.1\r\nHost: h\r\nContent-Length: 11\r\nX: y\r\n\r\nhello worldGET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0010\r\n0123456789abcdef\r\n0;y\r\nT: u\r\n\r\nGET / "
      "HTTP/1.0\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\nFolded: a\r\n b\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n",
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
      "GET / HTTP/1.1\r\nHost: h\r\nBroken\r\n\r\n",
  };
  for (const std::string& input : inputs) {
    const std::string whole = text(read_pieces({input}));
    std::vector<std::string_view> bytes;
    for (size_t i = 0; i < input.size(); ++i) bytes.emplace_back(&input[i], 1);
    EXPECT_EQ(text(read_pieces(bytes)), whole);
    const std::string_view view = input;
    for (size_t a = 1; a < view.size(); ++a) {
      ASSERT_EQ(text(read_pieces({view.substr(0, a), view.substr(a)})), whole) << input << " at " << a;
      for (size_t b = a + 1; b < view.size(); b += 3)
        ASSERT_EQ(text(read_pieces({view.substr(0, a), view.substr(a, b - a), view.substr(b)})), whole)
            << input << " at " << a << ", " << b;
    }
  }
}

// A long body in many chunks, cut at random.
TEST(RequestReader, RandomCuts) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(fmt::format("BATON_SEED={}", seed));
  std::mt19937 random(seed);
  for (int run = 0; run < 200; ++run) {
    std::string body;
    std::string bytes = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (unsigned chunks = random() % 20; chunks-- > 0;) {
      const std::string content(1 + random() % 3000, static_cast<char>('a' + random() % 26));
      body += content;
      bytes += fmt::format("{:x}\r\n{}\r\n", content.size(), content);
    }
    bytes += "0\r\n\r\n";
    std::vector<std::string_view> pieces;
    for (std::string_view rest = bytes; !rest.empty();) {
      const size_t n = std::min<size_t>(rest.size(), 1 + random() % (random() % 2 == 0 ? 5 : 4000));
      pieces.push_back(rest.substr(0, n));
      rest.remove_prefix(n);
    }
    const Outcome o = read_pieces(pieces);
    ASSERT_EQ(o.requests.size(), 1) << text(o).substr(0, 200);
    ASSERT_EQ(o.requests[0].body, body);
  }
}

}  // namespace
}  // namespace baton::http
