#include "api/chat.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace baton::api {
namespace {

constexpr std::string_view kHello = R"("messages":[{"role":"user","content":"Hello"}])";

ApiResult<ChatRequest> parsed(std::string_view more, const ParseLimits& limits = {}) {
  return parse_chat(fmt::format("{{{}{}{}}}", kHello, more.empty() ? "" : ",", more), limits);
}

TEST(Chat, TheLeast) {
  const auto r = parsed("");
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->prompt.messages.as_list().items.size(), 1U);
  EXPECT_FALSE(r->stream.on);
  EXPECT_EQ(r->sampling.n, 1);
  EXPECT_FALSE(r->sampling.temperature);
}

}  // namespace
}  // namespace baton::api
