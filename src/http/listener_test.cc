#include "http/listener.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace baton::http {
namespace {

TEST(Listener, Answers) {
  auto l = Listener::start({.error_body = default_error_body}, [](const std::shared_ptr<Exchange>& e) {
    if (e->request().path == "/s") {
      auto s = e->stream({});
      s->write("data: a\n\n");
      s->write("data: b\n\n");
      s->end();
      return;
    }
    e->respond({.body = e->request().path + "|" + e->request().body});
  });
  ASSERT_TRUE(l.ok());
  int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons((*l)->port());
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a), 0);
  const std::string r =
      "POST /x?y=1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET /s HTTP/1.1\r\nHost: a\r\n\r\n"
      "GET /z HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  ASSERT_EQ(::send(fd, r.data(), r.size(), 0), static_cast<ssize_t>(r.size()));
  std::string got;
  char buf[4096];
  for (ssize_t n; (n = ::recv(fd, buf, sizeof buf, 0)) > 0;) got.append(buf, static_cast<size_t>(n));
  ::close(fd);
  EXPECT_NE(got.find("/x|abc"), std::string::npos);
  EXPECT_NE(got.find("\r\n\r\n12\r\ndata: a\n\ndata: b\n\n\r\n0\r\n\r\n"), std::string::npos);
  EXPECT_NE(got.find("/z|"), std::string::npos);
}

}  // namespace
}  // namespace baton::http
