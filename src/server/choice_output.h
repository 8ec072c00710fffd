// One choice of one request: its tokens in, what the client sees of them out. Detokenises, looks for stop strings, tells reasoning, content
// and calls apart, counts, and keeps log-probabilities.
//
// What comes out does not depend on how tokens were gathered into calls. Nothing behind the first stop exists for anyone.
// One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/answer.h"
#include "ops/head.h"
#include "server/stop_scanner.h"
#include "text/detokenizer.h"
#include "text/parse/output_parser.h"

namespace baton::server {

// How the tokens of all choices of a request become output. What is pointed to outlives them.
struct OutputOptions {
  const text::Tokenizer* tokenizer = nullptr;
  const text::OutputMarkup* markup = nullptr;  // null: everything is content
  const text::ToolTypes* tools = nullptr;
  bool starts_in_reasoning = false;
  bool skip_special = true;
  std::vector<std::string> stop;
  bool include_stop = false;  // the stop string or token stays in the text
  bool logprobs = false;
  bool token_ids = false;
};

// What a choice has to tell since the last time.
struct ChoiceNews {
  std::vector<text::OutputEvent> events;  // merged; without kFinish
  std::vector<api::TokenLogprobs> logprobs;
  std::vector<int32_t> token_ids;
  std::optional<api::Finish> finish;

  bool empty() const { return events.empty() && logprobs.empty() && token_ids.empty() && !finish; }
  void clear();
};

class ChoiceOutput {
 public:
  // `options` outlives it.
  explicit ChoiceOutput(const OutputOptions& options);

  struct Token {
    int32_t id = 0;
    bool stops = false;      // a stop token: it counts, and shows only if asked for
    bool ends_form = false;  // a stop token behind the last of a form: it never shows
    float logprob = 0;
    std::span<const ops::TokenLogprob> top;
  };
  // True if a stop string is complete with it: the choice has ended. Not after the end.
  bool add(const Token& token);
  // The end for another reason than a stop string. `stop_token` is the one that was drawn, where the client named it.
  void finish(text::FinishReason reason, std::optional<int32_t> stop_token = std::nullopt);

  bool ended() const { return news_.finish.has_value() || ended_; }
  int64_t tokens() const { return tokens_; }               // with the one that ended the choice
  int64_t reasoning_tokens() const { return reasoning_; }  // of these

  ChoiceNews& news() { return news_; }
  // After the news have been passed on.
  void forget_news();

 private:
  struct Held {
    int32_t marker;     // the token, if it is a marker, which reaches the parser whole; -1: text
    size_t begin, end;  // of its text, in the whole text
  };
  void show_token(int32_t id);
  void show_text(std::string_view text);
  void release(size_t end, bool last);
  void end_here(text::FinishReason reason);
  std::string_view held_text(size_t begin, size_t end) const;

  const OutputOptions& options_;
  std::optional<text::OutputParser> parser_;
  text::Detokenizer detokenizer_;
  StopScanner scanner_;
  std::string held_;       // text that a stop string may still begin in
  size_t held_begin_ = 0;  // where it begins in the whole text
  std::deque<Held> waiting_;
  std::string piece_;
  std::vector<text::OutputEvent> parsed_;
  ChoiceNews news_;
  int64_t tokens_ = 0, reasoning_ = 0;
  bool ended_ = false;
};

}  // namespace baton::server
