// From the bytes of a connection to requests: a state machine without socket, thread or clock.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "http/message.h"

namespace baton::http {

// What is wrong with the bytes: the status to answer with, and why, for the client to read.
struct Refusal {
  int status = 400;
  std::string message;
};

class RequestReader {
 public:
  enum class State {
    kEmpty,     // between two requests: nothing has come
    kHead,      // a part of the head
    kBody,      // the head is complete
    kComplete,  // take() it
    kRefused,   // for good
  };

  explicit RequestReader(const Limits& limits);
  ~RequestReader();
  RequestReader(const RequestReader&) = delete;
  RequestReader& operator=(const RequestReader&) = delete;

  // Takes bytes in pieces of any size and returns how many of `input` belong to this request; fewer than given only when it is complete or
  // refused. Holds at most one request within its limits, and nothing in kEmpty.
  size_t feed(std::string_view input);
  State state() const { return state_; }
  const Refusal& refusal() const { return refusal_; }
  // What has been read of the head so far, also once it is refused; null: nothing.
  const Request* head() const;

  // From kBody on.
  bool expects_continue() const;  // the client waits for 100 before it sends the body, and none of it has come
  bool keep_alive() const;
  bool http_1_0() const;
  bool head_only() const;     // HEAD
  size_t body_bytes() const;  // that have come

  // In kComplete; then kEmpty.
  Request take();

 private:
  class Parser;
  void refuse(int status, std::string message);
  size_t parse(std::string_view input);
  void check_head();

  const Limits& limits_;
  State state_ = State::kEmpty;
  std::unique_ptr<Parser> parser_;  // from the first byte of a request on
  std::string partial_;             // bytes of the request that cannot be parsed without those that follow
  size_t empty_lines_ = 0;          // bytes of line ends before the request
  size_t framing_bytes_ = 0;        // of the head, or of a chunked body, since the last byte of content
  Refusal refusal_;
};

}  // namespace baton::http
