#include "server/choice_output.h"

#include <gtest/gtest.h>

#include <random>

#include "base/test_seed.h"
#include "server/stop_scanner.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace baton::server {
namespace {

using text::FinishReason;
using text::OutputEvent;

constexpr const char* kTokenizer = BATON_TEST_DATA "/tokenizers/glm-like.json";

const text::Tokenizer& tokenizer() {
  static const text::Tokenizer t = std::move(*text::Tokenizer::load(kTokenizer));
  return t;
}
const text::OutputMarkup& markup() {
  static const text::OutputMarkup m(tokenizer());
  return m;
}
std::vector<int32_t> ids_of(std::string_view text) { return std::move(*tokenizer().encode(text)); }

struct Outcome {
  std::string reasoning, content, arguments;
  api::Finish finish;
  int64_t tokens = 0, reasoning_tokens = 0;
  size_t logprobs = 0;
};

// Feeds tokens, gathered into news of `batch`, up to the end.
Outcome run(const OutputOptions& options, std::span<const int32_t> ids, size_t batch = 1, FinishReason end = FinishReason::kStop) {
  ChoiceOutput output(options);
  Outcome out;
  const auto take = [&] {
    for (const OutputEvent& e : output.news().events) {
      if (e.kind == OutputEvent::Kind::kReasoning) out.reasoning += e.text;
      if (e.kind == OutputEvent::Kind::kContent) out.content += e.text;
      if (e.kind == OutputEvent::Kind::kToolArguments) out.arguments += e.text;
    }
    out.logprobs += output.news().logprobs.size();
    if (output.news().finish) out.finish = *output.news().finish;
    output.forget_news();
  };
  for (size_t i = 0; i < ids.size() && !output.ended(); ++i) {
    output.add({.id = ids[i], .stops = false, .logprob = -0.5F, .top = {}});
    if ((i + 1) % batch == 0) take();
  }
  if (!output.ended()) output.finish(end);
  take();
  out.tokens = output.tokens();
  out.reasoning_tokens = output.reasoning_tokens();
  return out;
}

OutputOptions plain(std::vector<std::string> stop = {}) {
  OutputOptions o;
  o.tokenizer = &tokenizer();
  o.stop = std::move(stop);
  return o;
}
OutputOptions chat(std::vector<std::string> stop = {}) {
  OutputOptions o = plain(std::move(stop));
  o.markup = &markup();
  o.starts_in_reasoning = true;
  return o;
}

TEST(StopScanner, FindsWhatASearchFinds) {
  const unsigned seed = test_seed();
  SCOPED_TRACE(testing::Message() << "BATON_SEED=" << seed);
  std::mt19937 random(seed);
  const auto word = [&](size_t most) {
    std::string w;
    for (size_t n = 1 + random() % most; n > 0; --n) w += static_cast<char>('a' + random() % 2);
    return w;
  };
  for (int round = 0; round < 3000; ++round) {
    const std::string text = word(40);
    std::vector<std::string> stops;
    for (size_t n = 1 + random() % 3; n > 0; --n) stops.push_back(word(6));
    // The first place where any of them is complete; the longest of those.
    std::optional<StopScanner::Match> expected;
    for (size_t end = 1; end <= text.size() && !expected; ++end)
      for (size_t s = 0; s < stops.size(); ++s)
        if (std::string_view(text).substr(0, end).ends_with(stops[s]) && (!expected || end - stops[s].size() < expected->begin))
          expected = StopScanner::Match{end - stops[s].size(), end, s};
    StopScanner scanner(stops);
    std::optional<StopScanner::Match> found;
    for (size_t at = 0; at < text.size() && !found;) {
      const size_t n = std::min<size_t>(1 + random() % 5, text.size() - at);
      found = scanner.add(std::string_view(text).substr(at, n));
      at += n;
      EXPECT_LE(scanner.clear(), expected ? expected->begin : text.size());  // nothing of it has been let go
    }
    ASSERT_EQ(found.has_value(), expected.has_value()) << text;
    if (!found) continue;
    EXPECT_EQ(found->begin, expected->begin) << text;
    EXPECT_EQ(found->end, expected->end) << text;
  }
}

// A stop string at every offset of a text, of every length: the text before it comes, whole, and nothing behind it.
TEST(ChoiceOutput, StopsAtEveryOffset) {
  const std::string text = "The naïve café — déjà vu 日本語 <b>bold</b>, 12345 and so on.";
  const std::vector<int32_t> ids = ids_of(text);
  for (size_t begin = 0; begin < text.size(); ++begin) {
    if (text::is_continuation(text[begin])) continue;
    for (const size_t length : {1UL, 3UL, 9UL, 20UL}) {
      size_t end = std::min(begin + length, text.size());
      while (end < text.size() && text::is_continuation(text[end])) ++end;
      const std::string stop = text.substr(begin, end - begin);
      const size_t first = text.find(stop);
      for (const size_t batch : {1UL, 4UL, 1000UL}) {
        const Outcome out = run(plain({stop}), ids, batch);
        EXPECT_EQ(out.content, text.substr(0, first)) << stop;
        EXPECT_EQ(out.finish.reason, FinishReason::kStop);
        EXPECT_EQ(std::get<std::string>(out.finish.matched), stop);
        // Tokens behind the one that completed it never count.
        size_t complete = 0;
        for (std::string so_far; so_far.size() < first + stop.size(); ++complete) so_far += tokenizer().bytes(ids[complete]);
        EXPECT_EQ(out.tokens, static_cast<int64_t>(complete)) << stop;
      }
      OutputOptions with = plain({stop});
      with.include_stop = true;
      EXPECT_EQ(run(with, ids).content, text.substr(0, first + stop.size()));
    }
  }
}

TEST(ChoiceOutput, AStopStringThatNeverComesChangesNothing) {
  const std::vector<int32_t> ids =
      ids_of("Let me see.</think>Yes <i>so</i>. <tool_call>f<arg_key>a</arg_key><arg_value>1</arg_value></tool_call>");
  text::ToolTypes tools;
  tools.add("f", nullptr);
  for (const char* stop : {"zzz", "<", "</thinkX", "</tool_call>!", "ink>No"}) {
    OutputOptions without = chat(), with = chat({stop});
    without.tools = with.tools = &tools;
    if (std::string_view(stop) == "<") continue;  // does come
    const Outcome a = run(without, ids), b = run(with, ids);
    EXPECT_EQ(a.reasoning, "Let me see.");
    EXPECT_EQ(b.reasoning, a.reasoning) << stop;
    EXPECT_EQ(b.content, a.content) << stop;
    EXPECT_EQ(b.arguments, a.arguments) << stop;
    EXPECT_EQ(b.finish.reason, FinishReason::kToolCalls) << stop;
    EXPECT_EQ(b.tokens, a.tokens);
    EXPECT_EQ(b.reasoning_tokens, a.reasoning_tokens) << stop;
  }
}

TEST(ChoiceOutput, AMarkerCanBeAStopString) {
  const std::vector<int32_t> ids = ids_of("thought</think>answer");
  const Outcome out = run(chat({"</think>"}), ids);
  EXPECT_EQ(out.reasoning, "thought");
  EXPECT_EQ(out.content, "");
  const Outcome across = run(chat({"ink>ans"}), ids);  // begins within the marker
  EXPECT_EQ(across.reasoning, "thought</th");
  EXPECT_EQ(across.content, "");
}

TEST(ChoiceOutput, CountsWhatTheClientCouldSee) {
  const std::vector<int32_t> ids = ids_of("a b c</think>d e f g");
  OutputOptions options = chat();
  options.logprobs = true;
  const Outcome out = run(options, ids, 3);
  EXPECT_EQ(out.tokens, static_cast<int64_t>(ids.size()));
  EXPECT_EQ(out.logprobs, ids.size());
  EXPECT_EQ(out.reasoning_tokens, static_cast<int64_t>(ids_of("a b c").size()) + 1);  // with </think>
}

// Whoever asks to see stop tokens sees those of free output; a form has no place for one.
TEST(ChoiceOutput, WhatEndsAFormNeverShows) {
  const std::vector<int32_t> ids = ids_of("green");
  const int32_t end = tokenizer().id_of("<|endoftext|>").value();
  for (const bool skip : {false, true})
    for (const bool include : {false, true})
      for (const bool form : {false, true})
        for (const char* stop : {"", "zzz"}) {
          OutputOptions options = *stop != '\0' ? plain({stop}) : plain();
          options.skip_special = skip;
          options.include_stop = include;
          ChoiceOutput output(options);
          for (const int32_t id : ids) output.add({.id = id, .stops = false, .logprob = 0, .top = {}});
          output.add({.id = end, .stops = true, .ends_form = form, .logprob = 0, .top = {}});
          output.finish(FinishReason::kStop);
          std::string text;
          for (const OutputEvent& e : output.news().events) text += e.text;
          EXPECT_EQ(text, include && !skip && !form ? "green<|endoftext|>" : "green") << skip << include << form << stop;
          EXPECT_EQ(output.tokens(), static_cast<int64_t>(ids.size()) + 1);
        }
}

TEST(ChoiceOutput, AHalfCharacterIsShownAtTheEnd) {
  const std::vector<int32_t> ids = ids_of("é");
  for (const std::vector<std::string>& stop : {std::vector<std::string>{}, std::vector<std::string>{"xyz"}}) {
    std::vector<int32_t> half;
    for (int32_t id = 0; id < tokenizer().id_limit() && half.empty(); ++id)
      if (tokenizer().bytes(id) == "\xC3") half.push_back(id);
    ASSERT_EQ(half.size(), 1U);
    EXPECT_EQ(run(plain(stop), half, 1, FinishReason::kLength).content, "\uFFFD");
    EXPECT_EQ(run(chat(stop), half, 1, FinishReason::kLength).reasoning, "\uFFFD");
  }
}

}  // namespace
}  // namespace baton::server
