// From the body of one streamed answer to its record: a state machine over pieces of any size, told when each has arrived.
#pragma once

#include <string>
#include <string_view>

#include "http/event_reader.h"
#include "load/record.h"

namespace baton::load {

class AnswerReader {
 public:
  // Writes into `record`, which outlives it.
  explicit AnswerReader(Record& record) : record_(record) {}

  // Of an answer with `status`, at `now` seconds since the run began.
  void feed(int status, std::string_view bytes, double now);
  // The answer's body was complete, as HTTP says. Without the end of the event stream it is a failure all the same.
  void end(int status);
  bool failed() const { return !record_.failure.empty(); }

 private:
  bool take(const http::Event& event, double now);
  void fail(std::string kind, std::string message);

  Record& record_;
  http::EventReader events_;
  std::string error_body_;  // the beginning of an answer that is not 200
  bool done_ = false;
};

}  // namespace baton::load
