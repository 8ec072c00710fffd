// POST /v1/chat/completions: the answer, whole or in chunks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/answer.h"
#include "api/error.h"

namespace baton::api {

// Appends the events of a stream, each with its empty line, to a string. The order that clients count on is the caller's to keep: for each
// choice role, events, finish; then usage, if it was asked for, and done. After error() nothing more, above all no done().
// Belongs to one thread at a time. Does not allocate but for the output and for what log-probabilities wait.
class ChatChunkWriter {
 public:
  struct Options {
    int32_t choices = 1;
    bool logprobs = false;
    bool include_usage = false;     // every chunk then has `usage`, null but in the last
    bool continuous_usage = false;  // every chunk has the usage so far
  };
  ChatChunkWriter(const AnswerHead& head, const Options& options);

  // The message begins.
  void role(std::string& out, int32_t choice, const Usage& usage = {});
  // A chunk for each event that shows; ends of calls and kFinish do not. The log-probabilities of tokens that nothing is shown of yet come
  // with the next chunk of the choice; those that still wait at the end come with a chunk of their own, for clients that look for an end
  // in chunks without.
  void events(std::string& out, int32_t choice, std::span<const text::OutputEvent> events, std::span<const TokenLogprobs> logprobs = {},
              const Usage& usage = {});
  void finish(std::string& out, int32_t choice, const Finish& finish, const Usage& usage = {});
  void usage(std::string& out, const Usage& usage);
  void done(std::string& out);
  void error(std::string& out, const ApiError& error);

 private:
  void begin(std::string& out, int32_t choice) const;
  void end(std::string& out, int32_t choice, const Usage& usage, const Finish* finish);

  std::string prefix_;         // "data: {"id":..., "choices":["
  std::string reasoning_key_;  // "reasoning_content":
  std::string id_;
  Options options_;
  std::vector<std::string> waiting_;  // by choice: entries of log-probabilities that no chunk carried yet
};

struct ChatAnswer {
  std::span<const Choice> choices;
  const Usage& usage;
  bool logprobs = false;
  std::span<const TokenLogprobs> prompt_logprobs{};  // in the shape of vLLM; empty: none
};

// The body of a whole answer.
void append_chat_answer(std::string& out, const AnswerHead& head, const ChatAnswer& answer);

}  // namespace baton::api
