#include "api/chat_writer.h"

#include <gtest/gtest.h>

namespace baton::api {
namespace {

TEST(ChatWriter, FirstChunk) {
  ChatChunkWriter w({.id = "chatcmpl-1", .created = 7, .model = "m"}, {});
  std::string out;
  w.role(out, 0);
  EXPECT_EQ(out,
            R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"m","system_fingerprint":null,"choices":[)"
            R"({"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]})"
            "\n\n");
}

}  // namespace
}  // namespace baton::api
