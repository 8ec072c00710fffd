// POST /v1/responses: the answer, whole or as events.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "api/answer.h"
#include "api/error.h"

namespace baton::api {

struct ResponseHead : AnswerHead {
  std::string echo{};  // ResponsesRequest::echo
};

// Appends the events of a stream: start, events, finish; after error() nothing more. One choice. Holds the whole answer, since this API
// repeats it at the end. Belongs to one thread at a time.
class ResponseEventWriter {
 public:
  explicit ResponseEventWriter(ResponseHead head) : head_(std::move(head)) {}

  void start(std::string& out);
  void events(std::string& out, std::span<const text::OutputEvent> events);
  void finish(std::string& out, const Finish& finish, const Usage& usage);
  // An `error` event, and the failed response.
  void error(std::string& out, const ApiError& error);

  const Message& message() const { return message_; }

 private:
  void begin(std::string& out, std::string_view type);
  void begin_in_part(std::string& out, std::string_view type);
  static void end(std::string& out) { out += "}\n\n"; }
  void open(std::string& out, Message::Kind kind);
  void delta(std::string& out, const std::string& text);
  void close(std::string& out, std::string_view status = "completed");
  int64_t item() const { return static_cast<int64_t>(message_.parts.size()) - 1; }

  ResponseHead head_;
  Message message_;
  bool open_ = false;  // the last part goes on
  int64_t sequence_ = 0;
  int32_t calls_ = 0;
};

void append_response_answer(std::string& out, const ResponseHead& head, const Choice& choice, const Usage& usage);

}  // namespace baton::api
