#include "api/completion.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include "api/completion_writer.h"
#include "api/event_samples.h"
#include "api/tokenize.h"
#include "base/test_seed.h"

namespace baton::api {
namespace {

namespace json = boost::json;

std::string refusal(std::string_view body, const ParseLimits& limits = {}) {
  const auto r = parse_completion(body, limits);
  return r.ok() ? "taken" : r.error().message;
}

std::string prompts_of(std::string_view prompt) {
  const auto r = parse_completion(fmt::format(R"({{"prompt":{}}})", prompt), {});
  if (!r.ok()) return r.error().message;
  std::string all;
  for (const Prompt& p : r->prompts) {
    all += p.is_text() ? "'" + p.text + "' " : "";
    for (const int32_t id : p.ids) all += fmt::format("{} ", id);
    all += '|';
  }
  return all;
}

TEST(Completion, Prompts) {
  EXPECT_EQ(prompts_of(R"("a")"), "'a' |");
  EXPECT_EQ(prompts_of(R"(["a","b"])"), "'a' |'b' |");
  EXPECT_EQ(prompts_of("[1,2.0,3]"), "1 2 3 |");
  EXPECT_EQ(prompts_of(R"([[1,2],[3],"c"])"), "1 2 |3 |'c' |");
  EXPECT_EQ(prompts_of(R"("")"), "prompt: is empty");
  EXPECT_EQ(prompts_of("[]"), "prompt: is an empty list");
  EXPECT_EQ(prompts_of("[[1],[]]"), "prompt[1]: is empty");
  EXPECT_EQ(prompts_of("[1,-2]"), "prompt[1]: is -2; it must be a whole number from 0 to 2147483647");
  EXPECT_EQ(prompts_of("[1,true]"), "prompt[1]: is true; it must be a whole number from 0 to 2147483647");
  EXPECT_EQ(prompts_of("[[1],[\"a\"]]"), "prompt[1][0]: is 'a'; it must be a whole number from 0 to 2147483647");
  EXPECT_EQ(prompts_of("[true]"), "prompt[0]: is true; it must be a string or a list of token ids");
  EXPECT_EQ(prompts_of("{}"), "prompt: is an object; it must be a string, a list of token ids, or a list of such");
  EXPECT_EQ(refusal(R"({"prompt":[5]})", {.vocabulary = 5}), "prompt[0]: is 5; it must be a whole number from 0 to 4");
}

TEST(Completion, Fields) {
  const auto r = parse_completion(R"({"prompt":"a","echo":true,"logprobs":2,"stream":true,"n":2,"best_of":1,"suffix":""})", {});
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(*r->sampling.max_tokens, 16);
  EXPECT_EQ(r->sampling.logprobs, 2);
  EXPECT_EQ(r->sampling.prompt_logprobs, 2);
  EXPECT_TRUE(r->echo && r->add_special_tokens);
  EXPECT_EQ(refusal("{}"), "prompt: is missing");
  EXPECT_EQ(refusal(R"({"prompt":"a","max_tokens":0})"), "max_tokens: is 0, which is only of use with `echo`");
  EXPECT_EQ(refusal(R"({"prompt":"a","max_tokens":0,"echo":true})"), "taken");
  EXPECT_EQ(refusal(R"({"prompt":"a","suffix":"b"})"), "suffix: the model does not fill in the middle");
  EXPECT_EQ(refusal(R"({"prompt":"a","seed":1,"sampling_seed":2})"),
            "sampling_seed: says otherwise than `seed`, which means the same; give one of them");
  EXPECT_EQ(refusal(R"({"prompt":"a","seed":1,"sampling_seed":1,"min_tokens":null,"min_new_tokens":3})"), "taken");
  EXPECT_EQ(refusal(R"({"prompt":"a","logprobs":true})"), "logprobs: is true; it must be a whole number from 0 to 20");
  EXPECT_EQ(refusal(R"({"prompt":"a","min_tokens":40})"), "taken");
}

// Prompts, choices of each, and all choices: each has a bound of its own, which is reached whatever the others are.
TEST(Completion, BoundsOfPromptsAndChoices) {
  const auto body = [](size_t prompts, int n) {
    std::string list;
    for (size_t i = 0; i < prompts; ++i) list += i > 0 ? R"(,"a")" : R"("a")";
    return fmt::format(R"({{"prompt":[{}],"n":{}}})", list, n);
  };
  for (const int32_t choices : {1, 16, 128, 300}) {
    const ParseLimits limits{.choices = choices};
    const int most_each = std::min(choices, limits.all_choices / 2);
    EXPECT_EQ(refusal(body(limits.prompts, 1), limits), "taken");
    EXPECT_EQ(refusal(body(limits.prompts + 1, 1), limits), "prompt: has 257 elements; 256 are the most");
    EXPECT_EQ(refusal(body(1, choices), limits), "taken");
    EXPECT_EQ(refusal(body(2, most_each), limits), "taken");
    EXPECT_EQ(refusal(body(1, choices + 1), limits),
              fmt::format("n: is {}; {} are the most that this server takes (--max-choices)", choices + 1, choices));
  }
  EXPECT_EQ(refusal(body(3, 86)), "n: is 86 for 3 prompts; 256 choices are the most");
  EXPECT_EQ(refusal(body(1, 0)), "n: is 0; it must be a whole number from 1 to 2147483647");
}

TEST(Completion, Logprobs) {
  const AnswerHead head{.id = "cmpl-1", .created = 7, .model = "m"};
  CompletionChunkWriter w(head, {.logprobs = true});
  std::vector<TokenLogprobs> tokens(3);
  tokens[0].token = {1, 0, "\xE6\xBC"};
  tokens[0].known = false;
  tokens[1].token = {2, -0.5F, "\xA2"};
  tokens[1].top = {{3, -0.25F, "x"}, {4, -2, "x"}};
  tokens[2].token = {5, -1, "ab"};
  std::string out;
  w.text(out, 0, "\u6F22", std::span(tokens).first(2));
  w.text(out, 0, "ab", std::span(tokens).last(1));
  w.text(out, 0, "", {});
  w.finish(out, 0, {text::FinishReason::kLength, {}});
  const std::string head_text =
      R"(data: {"id":"cmpl-1","object":"text_completion","created":7,"model":"m","system_fingerprint":null,"choices":[)";
  EXPECT_EQ(
      out,
      head_text + "{\"index\":0,\"text\":\"\u6F22\"," +
          "\"logprobs\":{\"text_offset\":[0,1],\"token_logprobs\":[null,-0.5],\"tokens\":[\"bytes:\\\\xe6\\\\xbc\",\"bytes:\\\\xa2\"],"
          "\"top_logprobs\":[null,{\"x\":-0.25,\"bytes:\\\\xa2\":-0.5}]},\"finish_reason\":null}]}\n\n" +
          head_text +
          R"({"index":0,"text":"ab","logprobs":{"text_offset":[1],"token_logprobs":[-1],"tokens":["ab"],"top_logprobs":[{"ab":-1}]},)" +
          "\"finish_reason\":null}]}\n\n" + head_text + "{\"index\":0,\"text\":\"\",\"logprobs\":null,\"finish_reason\":\"length\"}]}\n\n");
}

TEST(Completion, ChunksSayWhatTheWholeAnswerSays) {
  const uint32_t seed = test_seed();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  const AnswerHead head{.id = "cmpl-1", .created = 7, .model = "m"};
  constexpr std::string_view kLists[] = {"text_offset", "token_logprobs", "tokens", "top_logprobs"};
  for (int round = 0; round < 200; ++round) {
    CompletionChunkWriter w(head, {.logprobs = true, .include_usage = true});
    std::string stream, answer;
    std::vector<CompletionChoice> choices(1);
    for (auto n = random() % 6; n > 0; --n) {
      const std::string text = random() % 4 == 0 ? "" : random_text(random);
      std::vector<TokenLogprobs> tokens;
      for (auto k = random() % 3; k > 0; --k) tokens.push_back(random_logprob(random));
      w.text(stream, 0, text, tokens);
      choices[0].text += text;
      choices[0].logprobs.insert(choices[0].logprobs.end(), tokens.begin(), tokens.end());
    }
    w.finish(stream, 0, {});
    append_completion_answer(answer, head, choices, {}, true);
    json::object whole = json::parse(answer).at("choices").at(0).as_object();
    std::string text;
    json::object lists;
    for (const auto name : kLists) lists[name].emplace_array();
    for (size_t at = 0; at < stream.size();) {
      const size_t end = stream.find("\n\n", at);
      const json::value chunk = json::parse(std::string_view(stream).substr(at + 6, end - at - 6));
      const json::value& choice = chunk.at("choices").at(0);
      text += choice.at("text").as_string();
      if (choice.at("logprobs").is_object())
        for (const auto name : kLists)
          for (const json::value& v : choice.at("logprobs").at(name).as_array()) lists[name].as_array().push_back(v);
      at = end + 2;
    }
    ASSERT_EQ(whole.at("text"), json::value(text));
    ASSERT_EQ(whole.at("logprobs"), json::value(lists)) << stream << answer;
  }
}

TEST(Tokenize, TextOrConversation) {
  const auto text = parse_tokenize(R"({"prompt":"a","return_token_strs":true,"add_special_tokens":true})", {});
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text->text, "a");
  EXPECT_TRUE(text->return_token_strs && text->add_special_tokens);
  const auto chat = parse_tokenize(R"({"messages":[{"role":"user","content":"a"}],"return_token_strs":true,"reasoning_effort":"low"})", {});
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_FALSE(chat->text);
  EXPECT_TRUE(chat->return_token_strs && chat->ignored_fields.empty());
  EXPECT_EQ(chat->prompt.messages.as_list().items.size(), 1U);
  EXPECT_EQ(parse_tokenize("{}", {}).error().message, "prompt: is missing; give it, or `messages`");
  EXPECT_EQ(parse_tokenize(R"({"prompt":"a","text":"b"})", {}).error().message,
            "text: is a second text beside another field's; give one of them");
  EXPECT_EQ(parse_render("{}", {}).error().message, "messages: is missing");
  EXPECT_EQ(parse_detokenize(R"({"tokens":[1,2]})", {})->tokens, (std::vector<int32_t>{1, 2}));
  EXPECT_TRUE(parse_detokenize(R"({"tokens":[]})", {})->tokens.empty());
  EXPECT_EQ(parse_detokenize(R"({"tokens":["a"]})", {}).error().message, "tokens: must be a list of token ids");
}

TEST(Tokenize, Answers) {
  std::string out;
  const int32_t ids[] = {1, 2};
  const std::string_view strings[] = {"a", "\xff"};
  append_tokens(out, ids, strings, 100);
  EXPECT_EQ(out, "{\"tokens\":[1,2],\"count\":2,\"max_model_len\":100,\"token_strs\":[\"a\",\"\uFFFD\"]}");
  out.clear();
  const Untrusted untrusted[] = {{1, 2}};
  append_rendered(out, "ab", ids, untrusted);
  EXPECT_EQ(out, R"({"prompt":"ab","tokens":[1,2],"count":2,"untrusted":[[1,2]]})");
  out.clear();
  append_detokenized(out, "x");
  EXPECT_EQ(out, R"({"prompt":"x","text":"x"})");
  out.clear();
  const ModelCard card{.id = "m", .created = 86400, .max_model_len = 9};
  append_models(out, {&card, 1});
  EXPECT_EQ(out, R"({"object":"list","data":[{"id":"m","object":"model","created":86400,"owned_by":"baton","root":null,"parent":null,)"
                 R"("max_model_len":9,"type":"model","lifecycle":"active",)"
                 R"("max_input_tokens":9,"display_name":"m","created_at":"1970-01-02T00:00:00Z"}],"has_more":false,)"
                 R"("first_id":"m","last_id":"m"})");
}

}  // namespace
}  // namespace baton::api
