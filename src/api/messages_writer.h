// POST /v1/messages of the Anthropic API: the answer, whole or as events.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "api/answer.h"
#include "api/error.h"

namespace baton::api {

// Appends the events of a stream: start, events, finish; after error() nothing more. One choice. Belongs to one thread at a time.
class MessageEventWriter {
 public:
  explicit MessageEventWriter(const AnswerHead& head) : head_(head) {}

  void start(std::string& out, const Usage& usage);
  void events(std::string& out, std::span<const text::OutputEvent> events);
  void finish(std::string& out, const Finish& finish, const Usage& usage);
  void error(std::string& out, const ApiError& error);

 private:
  void open(std::string& out, Message::Kind kind);
  void begin_block(std::string& out);
  void delta(std::string& out, std::string_view type, std::string_view key, std::string_view text);
  void close(std::string& out);

  AnswerHead head_;
  bool open_ = false;
  Message::Kind kind_{};  // of the open block
  int64_t index_ = -1;    // of the last block
};

void append_message_answer(std::string& out, const AnswerHead& head, const Choice& choice, const Usage& usage);
// The answer of count_tokens.
void append_token_count(std::string& out, int64_t tokens);

}  // namespace baton::api
