#include "http/message.h"

#include <gtest/gtest.h>

#include "http/cors.h"
#include "http/response_head.h"

namespace baton::http {
namespace {

TEST(Message, NamesCompareWithoutCase) {
  EXPECT_TRUE(equal_names("Content-Type", "cONTENT-tYPE"));
  EXPECT_FALSE(equal_names("a", "ab"));
  EXPECT_FALSE(equal_names("\xC4", "\xE4"));
  const HeaderList headers = {{"A", "1"}, {"a", "2"}};
  EXPECT_EQ(*find_header(headers, "a"), "1");
  EXPECT_EQ(find_header(headers, "b"), nullptr);
}

TEST(Message, ErrorBodies) {
  EXPECT_EQ(default_error_body(400, "a \"b\"\n\\"),
            R"({"error":{"message":"a \"b\" \\","type":"invalid_request_error","param":null,"code":null}})");
  EXPECT_NE(default_error_body(503, "").find("server_error"), std::string::npos);
  EXPECT_EQ(reason_phrase(404), "Not Found");
  EXPECT_EQ(reason_phrase(299), "Unknown");
}

TEST(Message, Date) {
  const std::string date = http_date();
  EXPECT_EQ(date.size(), 29U);
  EXPECT_TRUE(date.ends_with(" GMT"));
}

Request from(const std::string& origin, const std::string& method = "POST") {
  Request r{.method = method, .path = "/", .query = {}, .headers = {{"Origin", origin}}, .body = {}, .peer = {}};
  return r;
}

std::string decorated(const Cors& cors, const Request& request) {
  HeaderList headers;
  cors.decorate(request, headers);
  std::string out;
  for (const auto& [name, value] : headers) out += name + "=" + value + ";";
  return out;
}

TEST(Cors, DefaultAllowsNothing) {
  EXPECT_EQ(decorated({}, from("https://a")), "");
  EXPECT_FALSE(Cors().allows("null"));
}

TEST(Cors, NamesTheOriginItAllows) {
  const Cors cors({"https://a", "https://b:8443"});
  EXPECT_EQ(decorated(cors, from("https://a")), "Vary=Origin;Access-Control-Allow-Origin=https://a;Access-Control-Expose-Headers=*;");
  EXPECT_EQ(decorated(cors, from("https://a.evil")), "Vary=Origin;");
  EXPECT_EQ(decorated(cors, from("https://b")), "Vary=Origin;");
  EXPECT_EQ(decorated(cors, Request{}), "Vary=Origin;");
  EXPECT_NE(decorated(Cors({"*"}), from("https://x")).find("Allow-Origin=https://x"), std::string::npos);
}

TEST(Cors, KnowsWhatForeignPagesSend) {
  const auto foreign = [](const std::string& origin, const std::string& host, const std::string& site = {}) {
    Request r = from(origin);
    r.headers.emplace_back("Host", host);
    if (!site.empty()) r.headers.emplace_back("Sec-Fetch-Site", site);
    return Cors({"https://a"}).is_foreign(r);
  };
  EXPECT_FALSE(Cors().is_foreign(Request{}));
  EXPECT_FALSE(foreign("https://a", "here:8000", "cross-site"));
  EXPECT_FALSE(foreign("http://here:8000", "Here:8000"));
  EXPECT_FALSE(foreign("https://front", "behind:8000", "same-origin"));
  EXPECT_TRUE(foreign("http://here:8000", "here:8000", "cross-site"));
  EXPECT_TRUE(foreign("http://here:8001", "here:8000", "same-site"));
  EXPECT_TRUE(foreign("http://here:8001", "here:8000"));
  EXPECT_TRUE(foreign("null", "here:8000"));
  EXPECT_TRUE(foreign("https://b", "here:8000"));
}

TEST(Cors, Preflight) {
  const Cors cors({"https://a"});
  Request asks = from("https://a", "OPTIONS");
  EXPECT_FALSE(Cors::is_preflight(asks));
  asks.headers.emplace_back("access-control-request-method", "POST");
  asks.headers.emplace_back("Access-Control-Request-Headers", "authorization,content-type");
  EXPECT_TRUE(Cors::is_preflight(asks));
  const Response yes = cors.preflight(asks);
  EXPECT_EQ(yes.status, 204);
  EXPECT_EQ(*find_header(yes.headers, "Access-Control-Allow-Origin"), "https://a");
  EXPECT_EQ(*find_header(yes.headers, "Access-Control-Allow-Headers"), "authorization,content-type");
  asks.headers[0].second = "https://b";
  EXPECT_EQ(find_header(cors.preflight(asks).headers, "Access-Control-Allow-Origin"), nullptr);
}

}  // namespace
}  // namespace baton::http
