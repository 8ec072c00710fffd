#include "api/generate.h"

#include <gtest/gtest.h>

namespace baton::api {
namespace {

std::string refusal(std::string_view body, const ParseLimits& limits = {}) {
  const auto r = parse_generate(body, limits);
  return r.ok() ? "taken" : r.error().message;
}

TEST(Generate, Fields) {
  const auto r = parse_generate(R"({"input_ids":[1,2],"sampling_params":{"max_new_tokens":7,"temperature":0,"n":2,"regex":"a+","stop":"x"},
    "return_logprob":true,"logprob_start_len":1,"top_logprobs_num":3,"return_text_in_logprobs":true,"rid":"r","stream":true,"foo":1})",
                                {});
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->prompts.size(), 1U);
  EXPECT_FALSE(r->list);
  EXPECT_TRUE(r->many());
  EXPECT_EQ(*r->sampling.max_tokens, 7);
  EXPECT_EQ(r->sampling.logprobs, 3);
  EXPECT_EQ(r->sampling.prompt_logprobs, 3);
  EXPECT_EQ(r->logprob_start, 1);
  EXPECT_TRUE(r->text_in_logprobs && r->stream.on && r->grammar);
  EXPECT_EQ(r->id, "r");
  EXPECT_EQ(r->ignored_fields, std::vector<std::string>{"foo"});
  const auto least = parse_generate(R"({"text":["a"]})", {});
  ASSERT_TRUE(least.ok()) << least.error().message;
  EXPECT_TRUE(least->list && least->many());
  EXPECT_EQ(*least->sampling.max_tokens, 128);
  EXPECT_EQ(least->sampling.logprobs, -1);
}

TEST(Generate, WhatIsWrongIsNamed) {
  EXPECT_EQ(refusal("{}"), "text: is missing; give it, or `input_ids`");
  EXPECT_EQ(refusal(R"({"text":"a","input_ids":[1]})"), "input_ids: is a second prompt beside another field's; give one of them");
  EXPECT_EQ(refusal(R"({"input_ids":"a"})"), "input_ids: is a string; it must be a list of token ids");
  EXPECT_EQ(refusal(R"({"text":"a","sampling_params":[{}]})"), "sampling_params: is a list; one object counts for all prompts");
  EXPECT_EQ(refusal(R"({"text":"a","sampling_params":{"temperature":-1}})"),
            "sampling_params.temperature: is -1; it must be a number from 0 to 100");
  EXPECT_EQ(refusal(R"({"text":"a","image_data":"x"})"), "image_data: this model reads text only");
  EXPECT_EQ(refusal(R"({"text":["a","b"],"sampling_params":{"n":128}})"), "taken");
  EXPECT_EQ(refusal(R"({"text":["a","b","c"],"sampling_params":{"n":86}})"),
            "sampling_params.n: is 86 for 3 prompts; 256 choices are the most");
}

TEST(Generate, Answers) {
  const int32_t ids[] = {4, 5};
  std::vector<TokenLogprobs> tokens(2);
  tokens[0].token = {4, -0.5F, "a"};
  tokens[0].top.push_back({6, -0.25F, "b"});
  tokens[1].token = {5, 0, "c"};
  tokens[1].known = false;
  std::string out;
  append_generated(out, {.id = "r",
                         .text = "a\n",
                         .ids = ids,
                         .finish = Finish{text::FinishReason::kStop, 5},
                         .usage = {.prompt = 3, .completion = 2, .cached = 1},
                         .seconds = 0.5,
                         .index = 1,
                         .logprobs = true,
                         .text_in_logprobs = true,
                         .output_logprobs = tokens});
  EXPECT_EQ(
      out,
      R"({"index":1,"text":"a\n","output_ids":[4,5],"meta_info":{"id":"r","finish_reason":{"type":"stop","matched":5},)"
      R"("prompt_tokens":3,"completion_tokens":2,"cached_tokens":1,"reasoning_tokens":0,"input_token_logprobs":[],"input_top_logprobs":[],)"
      R"("output_token_logprobs":[[-0.5,4,"a"],[null,5,"c"]],"output_top_logprobs":[[[-0.25,6,"b"]],null],"e2e_latency":0.5}})");
  out.clear();
  append_generated_event(out, {.id = "r", .text = "", .finish = Finish{text::FinishReason::kLength, {}}, .usage = {.completion = 9}});
  EXPECT_EQ(out,
            "data: {\"text\":\"\",\"output_ids\":[],\"meta_info\":{\"id\":\"r\",\"finish_reason\":{\"type\":\"length\",\"length\":9},"
            "\"prompt_tokens\":0,\"completion_tokens\":9,\"cached_tokens\":0,\"reasoning_tokens\":0,\"e2e_latency\":0}}\n\n");
}

}  // namespace
}  // namespace baton::api
