// Random outputs for tests of writers: what an output parser may emit.
#pragma once

#include <random>
#include <vector>

#include "api/answer.h"

namespace baton::api {

inline std::string random_text(std::mt19937& random) {
  static constexpr std::string_view kPieces[] = {"a",          " word", "\n",          "\"",   "\\",     "\t",   "\x01",    "é",     "漢字",
                                                 "\U0001F600", "</b>",  "data: x\n\n", "\r\n", "\u2028", "\x7f", "{\"a\":", "[DONE]"};
  std::string text;
  for (auto n = random() % 4 + 1; n > 0; --n) text += kPieces[random() % std::size(kPieces)];
  return text;
}

// Reasoning, then content and calls; ends of calls and the finish are there as well.
inline std::vector<text::OutputEvent> random_events(std::mt19937& random) {
  using Kind = text::OutputEvent::Kind;
  std::vector<text::OutputEvent> events;
  for (auto n = random() % 3; n > 0; --n) events.push_back({Kind::kReasoning, -1, random_text(random), {}});
  int32_t calls = 0;
  for (auto blocks = random() % 4; blocks > 0; --blocks) {
    if (random() % 2 == 0) {
      for (auto n = random() % 3; n > 0; --n) events.push_back({Kind::kContent, -1, random_text(random), {}});
      continue;
    }
    events.push_back({Kind::kToolStart, calls, "tool_" + std::to_string(random() % 9), {}});
    events.push_back({Kind::kToolArguments, calls, "{\"key\":", {}});
    for (auto n = random() % 3; n > 0; --n) events.push_back({Kind::kToolArguments, calls, "[1,", {}});
    events.push_back({Kind::kToolArguments, calls, "}", {}});
    events.push_back({Kind::kToolEnd, calls++, "", {}});
  }
  events.push_back({Kind::kFinish, -1, "", text::FinishReason::kStop});
  return events;
}

inline TokenLogprobs random_logprob(std::mt19937& random) {
  TokenLogprobs t{.token = {static_cast<int32_t>(random() % 1000), -0.25F * static_cast<float>(random() % 40), random_text(random)}};
  for (auto n = random() % 3; n > 0; --n) t.top.push_back({static_cast<int32_t>(random() % 1000), -1.5F, "\xE6\xBC"});
  return t;
}

}  // namespace baton::api
