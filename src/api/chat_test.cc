#include "api/chat.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json/parse.hpp>

namespace baton::api {
namespace {

constexpr std::string_view kHello = R"("messages":[{"role":"user","content":"Hello"}])";
constexpr std::string_view kTool = R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";

ApiResult<ChatRequest> parsed(std::string_view more, const ParseLimits& limits = {}) {
  return parse_chat(fmt::format("{{{}{}{}}}", kHello, more.empty() ? "" : ",", more), limits);
}

std::string refusal(std::string_view body, const ParseLimits& limits = {}) {
  const auto r = parse_chat(body, limits);
  if (r.ok()) return "taken";
  EXPECT_EQ(r.error().status / 100, 4);
  EXPECT_FALSE(r.error().message.empty());
  return r.error().message;
}

std::string refusal_of_field(std::string_view more, const ParseLimits& limits = {}) {
  return refusal(fmt::format("{{{},{}}}", kHello, more), limits);
}

std::string refusal_of_messages(std::string_view messages) { return refusal(fmt::format(R"({{"messages":{}}})", messages)); }

TEST(Chat, TheLeast) {
  const auto r = parsed("");
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->prompt.messages.as_list().items.size(), 1U);
  EXPECT_TRUE(r->prompt.add_generation_prompt);
  EXPECT_FALSE(r->stream.on);
  EXPECT_EQ(r->sampling.n, 1);
  EXPECT_EQ(r->sampling.logprobs, -1);
  EXPECT_FALSE(r->sampling.temperature);
  EXPECT_FALSE(r->sampling.max_tokens);
  EXPECT_TRUE(r->ignored_fields.empty());
}

TEST(Chat, Everything) {
  const auto r = parsed(std::string(kTool) + R"(,
    "model":"m","temperature":0.5,"top_p":1,"top_k":-1,"min_p":0.1,"frequency_penalty":-2,"presence_penalty":2,"repetition_penalty":1.5,
    "seed":18446744073709551615,"logit_bias":{"7":-100,"3":1.5},"stop":["a","b"],"stop_token_ids":[5,6.0],"ignore_eos":true,"min_tokens":2,
    "max_tokens":9,"max_completion_tokens":10,"include_stop_str_in_output":true,"skip_special_tokens":false,"n":3,"logprobs":true,
    "top_logprobs":4,"priority":-7,"thinking_token_budget":100,"stream":true,
    "stream_options":{"include_usage":true,"continuous_usage_stats":true},"tool_choice":{"type":"function","function":{"name":"f"}},
    "parallel_tool_calls":false,"reasoning_effort":"low","chat_template_kwargs":{"enable_thinking":false},"user":"u","cache_salt":"s",
    "response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}},"metadata":{},"best_of":null)");
  ASSERT_TRUE(r.ok()) << r.error().message;
  const Sampling& s = r->sampling;
  EXPECT_EQ(r->model, "m");
  EXPECT_FLOAT_EQ(*s.temperature, 0.5F);
  EXPECT_EQ(*s.top_k, 0);
  EXPECT_EQ(*s.seed, UINT64_MAX);
  EXPECT_EQ(s.logit_bias, (std::vector<std::pair<int32_t, float>>{{3, 1.5F}, {7, -100.0F}}));
  EXPECT_EQ(s.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(s.stop_token_ids, (std::vector<int32_t>{5, 6}));
  EXPECT_EQ(*s.max_tokens, 10);
  EXPECT_EQ(s.n, 3);
  EXPECT_EQ(s.logprobs, 4);
  EXPECT_TRUE(s.ignore_eos && s.include_stop_str_in_output && !s.skip_special_tokens);
  EXPECT_EQ(r->priority, -7);
  EXPECT_EQ(*r->thinking_token_budget, 100);
  EXPECT_TRUE(r->stream.on && r->stream.include_usage && r->stream.continuous_usage);
  EXPECT_EQ(r->tools.choice, Tools::Choice::kNamed);
  EXPECT_EQ(r->tools.named, "f");
  EXPECT_FALSE(r->tools.parallel);
  EXPECT_EQ(r->tools.functions.size(), 1U);
  EXPECT_FALSE(r->tools.types().empty());
  EXPECT_EQ(r->reasoning_effort, "low");
  EXPECT_EQ(r->prompt.options.size(), 2U);
  EXPECT_EQ(r->grammar, (text::GrammarSpec{text::GrammarSpec::Kind::kJsonSchema, R"({"type":"object"})"}));
  EXPECT_EQ(r->cache_salt, "s");
  EXPECT_TRUE(r->ignored_fields.empty());
}

TEST(Chat, EveryFieldIsChecked) {
  const struct {
    const char* field;
    const char* message;
  } kCases[] = {
      {R"("temperature":-1)", "temperature: is -1; it must be a number from 0 to 100"},
      {R"("temperature":1e999)", "temperature: is a number larger than any float"},
      {R"("temperature":1e308)", "temperature: is 1e+308; it must be a number from 0 to 100"},
      {R"("temperature":NaN)", "The body is no JSON: "},
      {R"("temperature":true)", "temperature: is true; it must be a number from 0 to 100"},
      {R"("temperature":"1")", "temperature: is '1'; it must be a number"},
      {R"("top_p":0)", "top_p: is 0; it must be a number above 0 and at most 1"},
      {R"("top_k":-2)", "top_k: is -2; it must be a whole number from -1 to 2147483647"},
      {R"("min_p":1.1)", "min_p: is 1.1"},
      {R"("frequency_penalty":2.5)", "frequency_penalty: is 2.5; it must be a number from -2 to 2"},
      {R"("presence_penalty":[])", "presence_penalty: is an empty list"},
      {R"("repetition_penalty":0)", "repetition_penalty: is 0; it must be a number above 0"},
      {R"("seed":1.5)", "seed: is 1.5; it must be a whole number"},
      {R"("seed":99999999999999999999)", "seed: is 1e+20"},
      {R"("seed":true)", "seed: is true"},
      {R"("n":0)", "n: is 0; it must be a whole number from 1"},
      {R"("n":129)", "n: is 129; 128 are the most"},
      {R"("n":true)", "n: is true"},
      {R"("max_tokens":0)", "max_tokens: is 0"},
      {R"("max_completion_tokens":1e18)", "max_completion_tokens: is 1e+18"},
      {R"("metadata":{"a":[1,{"b":-1e400}]})", "metadata.a[1].b: is a number larger than any float"},
      {R"("nobody_knows":1e400)", "nobody_knows: is a number larger than any float"},
      {R"("min_tokens":5,"max_tokens":4)", "min_tokens: is 5, which is more than max_tokens, 4"},
      {R"("logprobs":1)", "logprobs: is 1; it must be true or false"},
      {R"("logprobs":true,"top_logprobs":21)", "top_logprobs: is 21; it must be a whole number from 0 to 20"},
      {R"("top_logprobs":2)", "top_logprobs: needs `logprobs` to be true"},
      {R"("stream":true,"prompt_logprobs":1)", "prompt_logprobs: cannot be streamed"},
      {R"("stop":"")", "stop: is empty"},
      {R"("stop":["a",1])", "stop[1]: is 1; it must be a string"},
      {R"("stop":{})", "stop: is an object; it must be a string or a list of strings"},
      {R"("stop_token_ids":[1,-1])", "stop_token_ids[1]: is -1"},
      {R"("logit_bias":{"x":1})", "logit_bias: has the key 'x', which is no token id"},
      {R"("logit_bias":{"1":101})", "logit_bias.1: is 101; it must be a number from -100 to 100"},
      {R"("logit_bias":{"1":1,"01":2})", "logit_bias: names the token 1 twice"},
      {R"("stream":"yes")", "stream: is 'yes'; it must be true or false"},
      {R"("stream_options":{"include_usage":true})", "stream_options: is only for streams: set `stream` to true"},
      {R"("stream":true,"stream_options":{"include_usage":1})", "stream_options.include_usage: is 1; it must be true or false"},
      {R"("stream":true,"stream_options":[])", "stream_options: is an empty list; it must be an object"},
      {R"("model":7)", "model: is 7; it must be a string"},
      {R"("best_of":2)", "best_of: the best of several answers is not chosen here; ask for `n`"},
      {R"("use_beam_search":true)", "use_beam_search: there is no beam search"},
      {R"("store":true)", "store: answers are not stored"},
      {R"("functions":[{}])", "functions: is out of use; `tools` is its successor"},
      {R"("modalities":["text","audio"])", "modalities: the model writes text only"},
      {R"("tools":{})", "tools: is an object; it must be a list"},
      {R"("tools":[{"type":"custom"}])", "tools[0].type: is 'custom'; tools must be of the type 'function'"},
      {R"("tools":[{"type":"function"}])", "tools[0]: has no `function`"},
      {R"("tools":[{"function":{}}])", "tools[0].function: has no `name`"},
      {R"("tools":[{"function":{"name":"a b"}}])", "tools[0].function.name: is 'a b'; it must have 1 to 128 characters"},
      {R"("tools":[{"function":{"name":"f"}},{"function":{"name":"f"}}])", "tools[1].function.name: is 'f', like that of an earlier"},
      {R"("tools":[{"function":{"name":"f","parameters":[]}}])", "tools[0].function.parameters: must be an object, a JSON schema"},
      {R"("tool_choice":"required")", "tool_choice: is 'required', but there are no tools"},
      {R"("tool_choice":"any")", "tool_choice: is 'any'; it must be 'auto', 'none', 'required'"},
      {R"("tool_choice":{"type":"function","function":{"name":"g"}})", "tool_choice: names 'g', which is not among the tools"},
      {R"("tool_choice":{"type":"allowed_tools"})", "tool_choice.type: is 'allowed_tools'"},
      {R"("response_format":{"type":"xml"})", "response_format.type: is 'xml'"},
      {R"("response_format":{})", "response_format: has no `type`"},
      {R"("response_format":{"type":"json_schema"})", "response_format: has no `schema`"},
      {R"("response_format":{"type":"json_schema","json_schema":{"schema":[]}})", "response_format.json_schema.schema: is an empty list"},
      {R"("response_format":{"type":"json_object"},"guided_regex":"a")", "guided_regex: is a second constraint on the output"},
      {R"("structured_outputs":{"choice":[]})", "structured_outputs.choice: is empty"},
      {R"("structured_outputs":{"json":7})", "structured_outputs.json: is 7; it must be an object"},
      {R"("structured_outputs":{"whitespace_pattern":"x"})", "structured_outputs.whitespace_pattern: white space"},
      {R"("json_schema":"{")", "json_schema: "},
      {R"("reasoning_effort":"huge")", "reasoning_effort: is 'huge'; it must be 'none', 'minimal'"},
      {R"("thinking":{"type":"maybe"})", "thinking: must be "},
      {R"("thinking_token_budget":-2)", "thinking_token_budget: is -2"},
      {R"("chat_template_kwargs":{"messages":[]})", "chat_template_kwargs.messages: is not a variable that can be set"},
      {R"("chat_template":"x")", "chat_template: the template is the server's"},
      {R"("add_generation_prompt":true,"continue_final_message":true)", "continue_final_message: excludes add_generation_prompt"},
      {R"("continue_final_message":true,"add_generation_prompt":true)", "continue_final_message: excludes add_generation_prompt"},
      {R"("temperature":1,"temperature":0)", "The body has \"temperature\" twice"},
      {R"("temperature":1,"temper\u0061ture":0)", "The body has a field twice"},
  };
  for (const auto& c : kCases) EXPECT_EQ(refusal_of_field(c.field).substr(0, std::string_view(c.message).size()), c.message) << c.field;
}

TEST(Chat, WhatIsWrongIsNamed) {
  const auto r = parsed(R"("logprobs":true,"top_logprobs":99)");
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().status, 400);
  EXPECT_EQ(r.error().type, "invalid_request_error");
  EXPECT_EQ(r.error().param, "top_logprobs");
  EXPECT_EQ(parsed(R"("store":true)").error().code, "unsupported_parameter");
  EXPECT_EQ(refusal("{}"), "messages: is missing");
  EXPECT_EQ(refusal(R"({"messages":null})"), "messages: is missing");
}

TEST(Chat, Messages) {
  const struct {
    const char* messages;
    const char* message;
  } kCases[] = {
      {R"([])", "messages: is empty"},
      {R"({})", "messages: must be a list"},
      {R"(["a"])", "messages[0]: must be an object"},
      {R"([{}])", "messages[0].role: must be 'system'"},
      {R"([{"role":"bot","content":"a"}])", "messages[0].role: is 'bot'; it must be"},
      {R"([{"role":"function","content":"a"}])", "messages[0].role: is 'function', which is out of use"},
      {R"([{"role":"user"}])", "messages[0].content: is missing"},
      {R"([{"role":"user","content":null}])", "messages[0].content: is missing"},
      {R"([{"role":"user","content":5}])", "messages[0].content: must be a string or a list of parts"},
      {R"([{"role":"user","content":[]}])", "messages[0].content: is an empty list"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text: must be a string"},
      {R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}}]}])",
       "messages[0].content[1].type: parts of the type 'image_url' are not supported"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"["}}]}])",
       "messages[0].tool_calls[0].function.arguments: must be a string that holds a JSON object"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{\"a\":1e400}"}}]}])",
       "messages[0].tool_calls[0].function.arguments: must be a string that holds a JSON object"},
      {R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{"a":1e400}}}]}])",
       "messages[0].tool_calls[0].function.arguments.a: is a number larger than any float"},
      {R"([{"role":"assistant","tool_calls":[{"type":"x"}]}])", "messages[0].tool_calls[0].type: must be 'function'"},
      {R"([{"role":"assistant","tool_calls":[{"function":{}}]}])", "messages[0].tool_calls[0].function.name: must be a string"},
      {R"([{"role":"assistant","reasoning":5}])", "messages[0].reasoning: must be a string"},
      {R"([{"role":"assistant","content":[{"type":"thinking"}]}])", "messages[0].content[0].thinking: must be a string"},
      {R"([{"role":"assistant","reasoning":"a","content":[{"type":"thinking","thinking":"b"}]}])", "messages[0].content: has parts of"},
      {R"([{"role":"user","content":[{"type":"thinking","thinking":"b"}]}])", "messages[0].content[0].type: parts of the type 'thinking'"},
      {R"([{"role":"assistant","content":"a","function_call":{}}])", "messages[0].function_call: is out of use"},
  };
  for (const auto& c : kCases)
    EXPECT_EQ(refusal_of_messages(c.messages).substr(0, std::string_view(c.message).size()), c.message) << c.messages;
}

TEST(Chat, MessagesAreAsTemplatesExpectThem) {
  const auto r = parse_chat(R"({"messages":[
    {"role":"developer","content":"d"},
    {"role":"assistant","reasoning":"why","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":""}}]},
    {"role":"tool","tool_call_id":"1","content":[{"type":"text","text":"t"}]},
    {"role":"assistant","content":[{"type":"refusal","refusal":"no"}]},
    {"role":"user","content":"\ud83d cut"},
    {"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"so"}]},
    {"role":"assistant","content":[{"type":"thinking","thinking":"hm"}]}]})",
                            {});
  ASSERT_TRUE(r.ok()) << r.error().message;
  const auto& items = r->prompt.messages.as_list().items;
  const auto text = [&](size_t i, std::string_view key) { return std::string(items[i].as_dict().find(key)->view()); };
  EXPECT_EQ(text(0, "role"), "system");
  EXPECT_EQ(text(1, "reasoning_content"), "why");
  EXPECT_EQ(text(1, "content"), "");
  const auto& call = items[1].as_dict().find("tool_calls")->as_list().items[0].as_dict();
  EXPECT_EQ(call.find("function")->as_dict().find("arguments")->view(), "{}");
  EXPECT_EQ(items[3].as_dict().find("content")->as_list().items[0].as_dict().find("text")->view(), "no");
  EXPECT_EQ(text(4, "content"), "\uFFFD cut");
  EXPECT_EQ(text(5, "reasoning_content"), "hm");
  EXPECT_EQ(items[5].as_dict().find("content")->as_list().items.size(), 1U);
  EXPECT_EQ(text(6, "reasoning_content") + text(6, "content"), "hm");
}

TEST(Chat, UnknownFieldsAreListedOrRefused) {
  const std::string_view more = R"("frobnicate":1,"stream":true,"stream_options":{"x y":2},"top_k":null,"typical_p":1.0)";
  const auto r = parsed(more);
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->ignored_fields, (std::vector<std::string>{"frobnicate", "stream_options.x?y"}));
  std::string many = "\"temperature\":1";
  for (int i = 0; i < 100; ++i) many += fmt::format(",\"unknown{}\":1", i);
  const auto cut = parsed(many);
  ASSERT_TRUE(cut.ok()) << cut.error().message;
  ASSERT_EQ(cut->ignored_fields.size(), 65U);
  EXPECT_EQ(cut->ignored_fields[63], "unknown63");
  EXPECT_EQ(cut->ignored_fields.back(), "...") << "there were more";
  EXPECT_EQ(refusal_of_field(more, {.strict = true}),
            "frobnicate: is no field that this endpoint knows, and unknown fields are refused here");
}

TEST(Chat, ToolChoiceNoneTellsTheModelOfNoTools) {
  const auto r = parsed(std::string(kTool) + R"(,"tool_choice":"none")");
  ASSERT_TRUE(r.ok());
  EXPECT_TRUE(r->tools.empty());
  EXPECT_TRUE(r->prompt.tools.is_missing());
}

TEST(Chat, ConstraintsInAllSpellings) {
  using Kind = text::GrammarSpec::Kind;
  const struct {
    const char* field;
    Kind kind;
    const char* text;
  } kCases[] = {
      {R"("response_format":{"type":"json_object"})", Kind::kJsonObject, ""},
      {R"("guided_json":{"type":"object"})", Kind::kJsonSchema, R"({"type":"object"})"},
      {R"("json_schema":"{\"type\":\"object\"}")", Kind::kJsonSchema, R"({"type":"object"})"},
      {R"("structured_outputs":{"json":{"type":"object"}})", Kind::kJsonSchema, R"({"type":"object"})"},
      {R"("guided_regex":"a+")", Kind::kRegex, "a+"},
      {R"("regex":"a+")", Kind::kRegex, "a+"},
      {R"("ebnf":"root ::= \"a\"")", Kind::kEbnf, "root ::= \"a\""},
      {R"("guided_grammar":"root ::= \"a\"")", Kind::kEbnf, "root ::= \"a\""},
      {R"("guided_choice":["yes","a\"b\\\n"])", Kind::kEbnf, R"(root ::= "yes" | "a\"b\\\n")"},
  };
  for (const auto& c : kCases) {
    const auto r = parsed(c.field);
    ASSERT_TRUE(r.ok()) << c.field << ": " << r.error().message;
    EXPECT_EQ(r->grammar, (text::GrammarSpec{c.kind, c.text})) << c.field;
  }
  EXPECT_FALSE(parsed(R"("response_format":{"type":"text"})")->grammar);
}

TEST(Chat, ReasoningEffort) {
  const auto options = [](std::string_view more) {
    std::string all;
    const auto r = parsed(more);
    for (const auto& [name, value] : r->prompt.options)
      all += fmt::format("{}={};", name, value.is_string() ? std::string(value.view()) : value.as_bool() ? "true" : "false");
    return all;
  };
  EXPECT_EQ(options(R"("reasoning_effort":"medium")"), "reasoning_effort=high;");
  EXPECT_EQ(options(R"("reasoning_effort":"none")"), "reasoning_effort=low;enable_thinking=false;");
  EXPECT_EQ(options(R"("thinking":{"type":"disabled"})"), "enable_thinking=false;");
  EXPECT_EQ(options(R"("reasoning":{"enabled":true,"effort":"xhigh","max_tokens":7})"), "enable_thinking=true;reasoning_effort=max;");
  // What the request says by name counts, wherever it stands.
  for (const char* more : {R"("reasoning_effort":"low","chat_template_kwargs":{"reasoning_effort":"max"})",
                           R"("chat_template_kwargs":{"reasoning_effort":"max"},"reasoning_effort":"low")"})
    EXPECT_EQ(options(more), "reasoning_effort=max;");
}

TEST(Chat, BodiesAreBounded) {
  EXPECT_EQ(refusal("[]"), "The body is JSON, but no object: {...} is needed.");
  EXPECT_EQ(refusal("").substr(0, 19), "The body is no JSON");
  EXPECT_EQ(refusal("{\"a\":\"\xff\"}").substr(0, 19), "The body is no JSON");
  EXPECT_EQ(refusal(std::string(200, '['), {}).substr(0, 28), "The body is nested deeper th");
  const auto large = parse_chat(std::string(100, ' '), {.body_bytes = 99});
  EXPECT_EQ(large.error().status, 413);
  EXPECT_EQ(refusal(R"({"a":[1,2,3]})", {.values = 4}), "The body holds more than 4 JSON values, the most that is taken.");
  EXPECT_EQ(refusal(R"({"a":1,"b":2})", {.fields = 1}), "The body has 2 fields; 1 are the most that is taken.");
  EXPECT_EQ(refusal(R"({"messages":[{"role":"user","content":"a"}]})", {.conversation_values = 3}),
            "messages: holds more than 3 JSON values, the most that is taken here");
  EXPECT_EQ(refusal_of_field(R"("stream":true,"stream_options":{"a":1,"b":2,"c":3,"d":4})", {.fields = 3}),
            "stream_options: has 4 fields; 3 are the most");
  EXPECT_EQ(refusal(R"({"messages":[{"role":"user","content":"a"},{"role":"user","content":"a"}]})", {.messages = 1}),
            "messages: has 2 elements; 1 are the most");
  EXPECT_EQ(refusal_of_field(kTool, {.tools = 0}), "tools: has 1 elements; 0 are the most");
  EXPECT_EQ(refusal_of_field(R"("stop":["a","b"])", {.stop_strings = 1}), "stop: has 2 elements; 1 are the most");
  EXPECT_EQ(refusal_of_field(R"("stop":"ab")", {.stop_bytes = 1}), "stop: has 2 bytes; 1 are the most");
  EXPECT_EQ(refusal_of_field(R"("stop_token_ids":[10])", {.vocabulary = 10}),
            "stop_token_ids[0]: is 10; it must be a whole number from 0 to 9");
  EXPECT_EQ(refusal_of_field(R"("logit_bias":{"10":1})", {.vocabulary = 10}), "logit_bias: has the key '10', which is no token id");
  const std::string schema = fmt::format(R"("json_schema":{{"type":"object","description":"{}"}})", std::string(300'000, 'x'));
  EXPECT_NE(refusal_of_field(schema), "taken");
}

}  // namespace
}  // namespace baton::api
