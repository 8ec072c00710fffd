// What an answer consists of, for the writers of all APIs: usage, ends, log-probabilities, and the parts of a message.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "text/parse/output_parser.h"

namespace baton::api {

struct Timing {
  double queue_s = 0, prefill_s = 0, decode_s = 0;
};

struct Usage {
  int64_t prompt = 0, completion = 0;
  int64_t reasoning = 0;  // of completion
  int64_t cached = 0;     // of prompt
  std::optional<int64_t> drafted{}, accepted{};
  std::optional<Timing> timing{};
};

// What all chunks of an answer, and the whole one, begin with.
struct AnswerHead {
  std::string id{};  // "chatcmpl-..."
  int64_t created = 0;
  std::string model{};
  std::string fingerprint{};                          // of the build and its configuration; empty: null
  std::string reasoning_field = "reasoning_content";  // of OpenAI's chat completions
};

// Why a choice ended, and the stop string or stop token that was met, if any.
struct Finish {
  text::FinishReason reason = text::FinishReason::kStop;
  std::variant<std::monostate, std::string, int32_t> matched{};
};

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;
  std::string bytes{};  // of the token; may be a part of a character
};

struct TokenLogprobs {
  TokenLogprob token{};
  std::vector<TokenLogprob> top{};
  bool known = true;  // false for the first token of a prompt, which nothing predicts
};

// A message as it grows: stretches of reasoning and content, and calls, in the order in which they came.
struct Message {
  enum class Kind : uint8_t { kReasoning, kContent, kCall };
  struct Part {
    Kind kind;
    std::string text;  // of a call: its arguments, JSON
    std::string name;  // of a call
    bool operator==(const Part&) const = default;
  };
  std::vector<Part> parts{};

  void add(const text::OutputEvent& event);
  std::string joined(Kind kind) const;  // the texts of all parts of a kind
  bool has(Kind kind) const;
  bool operator==(const Message&) const = default;
};

struct Choice {
  Message message{};
  Finish finish{};
  std::vector<TokenLogprobs> logprobs{};
};

// The id of a call: the same in chunks and in the whole answer, distinct among requests, choices and calls.
std::string call_id(std::string_view prefix, std::string_view request_id, int32_t choice, int32_t call);

}  // namespace baton::api
