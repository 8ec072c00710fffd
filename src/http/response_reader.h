// From the bytes of a connection to one answer: a state machine without socket, thread or clock.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "http/message.h"

namespace baton::http {

class ResponseReader {
 public:
  enum class State { kHead, kBody, kComplete, kFailed };

  // `without_body`: the answer to a HEAD request.
  explicit ResponseReader(bool without_body, size_t header_bytes = 64 << 10);
  ~ResponseReader();

  // Takes all bytes; those behind the answer are dropped and make the connection useless (see reusable). Content goes to `on_body` as it
  // comes; interim answers (1xx) are passed over.
  void feed(std::string_view input, const std::function<void(std::string_view)>& on_body);
  // The server sends nothing more; completes an answer that ends so, and fails any other.
  void end_of_input();

  State state() const { return state_; }
  const std::string& problem() const { return problem_; }
  int status() const;
  const HeaderList& headers() const;
  bool reusable() const;  // in kComplete: the connection may serve another request

 private:
  class Parser;
  void fail(std::string problem);
  void restart();

  const bool without_body_;
  const size_t header_bytes_;
  State state_ = State::kHead;
  std::unique_ptr<Parser> parser_;
  std::string partial_;
  std::string problem_;
  size_t framing_bytes_ = 0;
  bool extra_ = false;
};

}  // namespace baton::http
